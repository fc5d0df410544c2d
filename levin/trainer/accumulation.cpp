// A group of batches whose gradients are stepped with together: what each batch counts for, batches
// that give no gradients, and groups that an epoch's end cuts short.

#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/comm/operators.h"
#include "levin/optim/clip.h"
#include "levin/trainer/run.h"

namespace levin::detail {
namespace {

/// Whether to look at a number is to wait for nobody, and no recording has to do without it.
bool is_at_hand(const at::Tensor& number, const Accelerator& accelerator) {
  return number.is_cpu() && !accelerator.compiles();
}

}  // namespace

// Gradients of an optimizer with a frequency add up over the steps between its own.
void Run::begin_group() {
  for (PreparedOptimizer& optimizer : optimizers_) {
    if (progress_.global_step % optimizer.frequency() != 0) continue;
    module_->on_before_zero_grad(optimizer);
    tell(watchers_, &Callback::on_before_zero_grad);
    optimizer.zero_grad();
  }
  if (group_weight_.defined()) group_weight_.zero_();
}

// A mean over nothing is no number, so that a loss of weight 0 must not come near the gradients.
bool Run::gives_gradients(const at::Tensor& loss) {
  if (!loss.defined()) return false;
  if (!loss_weight_ || !weighs_nothing(*loss_weight_)) return true;
  check_same_weighting();
  return false;
}

// The other ranks' backward waits for what this one has.
void Run::join_exchange() {
  if (accelerator_.rank().world_size == 1) return;
  if (!gradients_ready_) begin_group();
  gradients_ready_ = accelerator_.synchronize_gradients(gradients_ready_);
}

bool Run::weighs_nothing(const at::Tensor& weight) const {
  return is_at_hand(weight, accelerator_) && weight.item<double>() == 0.0;
}

at::Tensor Run::weighted(const at::Tensor& loss, int64_t index) {
  const int64_t group_size = limits_.group_size(index);
  // A mean is the mean of its group, whatever it weighs.
  if (group_size == 1 && accelerator_.rank().world_size == 1) return loss;
  check_same_weighting();
  if (!loss_weight_) return group_size == 1 ? loss : loss / group_size;
  if (!group_weight_.defined()) {
    group_weight_ = at::zeros({}, loss.options().dtype(at::kDouble));
  }
  const at::Tensor weight = loss_weight_->to(loss.device(), at::kDouble);
  group_weight_.add_(weight);
  return loss * weight.to(loss.scalar_type());
}

void Run::check_same_weighting() {
  const bool weighs = loss_weight_.has_value();
  LEVIN_CHECK(weighs_.value_or(weighs) == weighs, "trainer.loss_weight",
              "set_loss_weight was called for some batches and not for others; call it for all of "
              "them");
  weighs_ = weighs;
}

// Once a run; a rank that has skipped all of its batches so far learns it from the others. Where
// steps are recorded none may be skipped.
void Run::agree_on_weighting() {
  if (weighting_agreed_ || accelerator_.compiles()) return;
  const bool weighs = accelerator_.any(weighs_.value_or(false));
  LEVIN_CHECK(weighs_.value_or(weighs) == weighs, "trainer.loss_weight",
              "set_loss_weight was called on other ranks and not on this one; call it on all");
  weighs_ = weighs;
  weighting_agreed_ = true;
}

// Of the group, over the ranks; gradients are the mean over the ranks already.
std::optional<at::Tensor> Run::group_weight() {
  const bool alone = accelerator_.rank().world_size == 1;
  if (!alone) agree_on_weighting();
  const bool is_one_batch = alone && limits_.group_size(progress_.batch) == 1;
  if (!weighs_.value_or(false) || is_one_batch) return std::nullopt;
  if (alone) return group_weight_;
  if (!group_weight_.defined()) {
    group_weight_ = at::zeros({}, at::TensorOptions(accelerator_.device()).dtype(at::kDouble));
  }
  const at::Tensor weight = group_weight_.clone();
  comm::call_all_reduce({weight}, accelerator_.world(), ReduceOp::kMean);
  return weight;
}

void Run::to_mean_of_group(const PreparedOptimizer& optimizer,
                           const std::optional<at::Tensor>& weight) {
  const double cut = cut_short();
  if (!weight && cut == 1.0) return;
  const std::vector<NamedTensor>& parameters = optimizer.optimizer().parameters();
  accelerator_.strategy().wait_gradients();
  if (weight) {
    optim::divide_grad(parameters, *weight);
  } else {
    optim::scale_grad(parameters, cut);
  }
}

void Run::drop_group() {
  gradients_ready_ = false;
  accelerator_.stepping().drop_gradients();
}

// A group of batches that an uncounted epoch's end cuts short is updated by all the same, so that
// the end must be seen when its last batch is at hand. All ranks see it at the same batch.
void Run::look_for_end(int64_t batches) {
  if (limits_.counted || batches >= limits_.train_batches || !train_loader_->at_end()) return;
  LEVIN_CHECK(batches > 0, "trainer.dataloader", "the stream of training data gave no batch{}",
              accelerator_.rank().world_size == 1 ? ""
                                                  : " to some rank; see IterableDataset's "
                                                    "num_shards, or set dispatch_batches");
  limits_.ended_after = batches;
}

// Losses of an uncounted epoch were divided by the size of a whole group, whether it came or not.
double Run::cut_short() const {
  if (limits_.counted || !module_->automatic_optimization) return 1.0;
  return static_cast<double>(limits_.accumulate) /
         static_cast<double>(limits_.place_in_group(progress_.batch) + 1);
}

}  // namespace levin::detail
