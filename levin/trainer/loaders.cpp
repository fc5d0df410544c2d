// The data of a run: its loaders, and the way of a batch to the device.

#include <torch/nn/module.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/trainer/run.h"

namespace levin::detail {
namespace {

/// A loader reads at one place at a time: that of validation reads the same data by itself.
DataLoader apart_from(const DataLoader& training, const DataLoader& validation) {
  const auto& sampler = training.options().sampler;
  LEVIN_CHECK(sampler == nullptr || sampler != validation.options().sampler, "trainer.dataloader",
              "the training and validation loaders share one sampler, but a sampler keeps only one "
              "position; give the validation loader its own sampler");
  return impl_of(validation) == impl_of(training) ? validation.copy() : validation;
}

}  // namespace

void Run::set_loaders(DataLoader training, std::vector<DataLoader> validation) {
  for (DataLoader& loader : validation) loader = apart_from(training, loader);
  const bool overfits = !options_.overfit_batches.is_none();
  if (overfits) {
    training = make_loader(impl_of(training)->in_order());
    for (DataLoader& loader : validation) loader = make_loader(impl_of(loader)->in_order());
  }
  training.set_epoch(0);  // a run before may have left it in an epoch's middle
  engine_.let_ranks_end_apart(joins());
  train_loader_ = engine_.prepare_loader(std::move(training), LoaderRole::kTraining);
  val_loaders_.clear();
  std::optional<int64_t> most = 0;
  for (DataLoader& loader : validation) {
    val_loaders_.push_back(overfits ? prepare_evaluation(std::move(loader), "overfit_batches",
                                                         options_.overfit_batches)
                                    : prepare_evaluation(std::move(loader), "limit_val_batches",
                                                         options_.limit_val_batches));
    const std::optional<int64_t> size = evaluation_size(val_loaders_.back().loader);
    most = most && size ? std::optional(std::max(*most, *size)) : std::nullopt;
  }
  limits_ = resolve_limits(options_, training_size(), most);
  limits_.accumulate_otherwise = engine_.accumulation_for(
      *train_loader_, limits_.accumulate_otherwise, "accumulate_grad_batches");
  limits_.enter_epoch(progress_.epoch);
}

void Run::reload_loaders() {
  const int64_t every = options_.reload_dataloaders_every_n_epochs;
  if (every == 0 || !loaders_can_be_reloaded_ || progress_.epoch % every != 0) return;
  std::optional<DataLoader> training =
      data_module_ ? data_module_->train_dataloader() : module_->train_dataloader();
  LEVIN_CHECK(training, "trainer.dataloader",
              "got no train_dataloader when the loaders were reloaded; return one in each epoch");
  engine_.forget_loaders();
  set_loaders(*std::move(training),
              data_module_ ? data_module_->val_dataloaders() : module_->val_dataloaders());
  train_loader_->set_epoch(progress_.epoch);
  if (boundary_) boundary_.emplace(*module_, *train_loader_, log_.train_values(), engine_);
}

// An accumulation window that an uncounted epoch's end cuts short is updated by all the same, so that
// the end must be seen when its last batch is at hand. All ranks see it at the same batch: the end of one
// rank's data, or with even_batches = false that of all.
void Run::look_for_end(int64_t batches) {
  if (limits_.counted || batches >= limits_.train_batches) return;
  bool has_ended = train_loader_->at_end();
  if (joins()) has_ended = !engine_.world().any(!has_ended);
  if (!has_ended) return;
  LEVIN_CHECK(
      batches > 0, "trainer.dataloader", "the training stream gave no batch{}",
      engine_.rank().world_size == 1
          ? ""
          : " to one of the ranks; see IterableDataset's num_shards, or set dispatch_batches");
  limits_.ended_after = batches;
}

Batch Run::transfer(Batch batch) {
  engine_.note_batch_size(batch.size());
  const ActionScope scope(profile_.get(), [this] { return action("batch_to_device"); });
  std::optional<Batch> moved;
  if (data_module_) batch = data_module_->on_before_batch_transfer(std::move(batch));
  batch = module_->on_before_batch_transfer(std::move(batch));
  if (data_module_) moved = data_module_->transfer_batch_to_device(batch, engine_.device());
  batch = moved ? *std::move(moved) : module_->transfer_batch_to_device(std::move(batch));
  if (data_module_) batch = data_module_->on_after_batch_transfer(std::move(batch));
  batch = module_->on_after_batch_transfer(std::move(batch));
  const Precision& precision = engine_.precision();
  return engine_.taken_for_step(precision.parameters ? precision.convert(batch) : batch);
}

}  // namespace levin::detail
