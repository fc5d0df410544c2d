#include "levin/strategy/ddp/ddp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/optim/clip.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/reducer.h"

namespace levin {

void DdpOptions::fields(FieldVisitor& field) {
  field("ddp_broadcast_buffers", broadcast_buffers, "ddp: rank 0's buffers for all, each step");
  field("ddp_find_unused_parameters", find_unused_parameters,
        "ddp: allow parameters that get no gradient");
  field("ddp_static_graph", static_graph, "ddp: each step uses the same parameters as the first");
  field("ddp_gradient_reduction", gradient_reduction, "ddp: mean or sum over processes");
  field("ddp_comm_hook", comm_hook, "ddp: type of gradients on their way: none, fp16, bf16, fp32");
  field("ddp_bucket_cap_mb", bucket_cap_mb, "ddp: gradients reduced at a time, MiB");
  field("ddp_first_bucket_mb", first_bucket_mb, "ddp: the same of the first ones, MiB");
  field("ddp_overlap", overlap, "ddp: reduce gradients while backward still runs");
}

namespace {

void check_word(std::string_view flag, const std::string& word,
                std::initializer_list<std::string> words) {
  const bool known = std::find(words.begin(), words.end(), word) != words.end();
  LEVIN_CHECK(known, "strategy.ddp.options", "got '{}' for {}, wanted one of {}", word, flag,
              to_text(std::vector<std::string>(words)));
}

const DdpOptions& checked(const DdpOptions& options) {
  check_word("--ddp-gradient-reduction", options.gradient_reduction, {"mean", "sum"});
  check_word("--ddp-comm-hook", options.comm_hook, {"none", "fp16", "bf16", "fp32"});
  LEVIN_CHECK(options.bucket_cap_mb > 0 && options.first_bucket_mb > 0, "strategy.ddp.options",
              "got buckets of {} and {} MiB, wanted more than 0", options.bucket_cap_mb,
              options.first_bucket_mb);
  return options;
}

/// Buffers that some rank has written to go to all from rank 0. Version counters do not tell: batch
/// norm writes its statistics past them.
class Buffers {
 public:
  explicit Buffers(const torch::nn::Module& module) {
    for (const auto& buffer : module.buffers()) {
      if (buffer.defined()) buffers_.push_back(buffer);
    }
    note_values();
  }

  void synchronize(comm::ProcessGroup& group) {
    if (buffers_.empty()) return;
    const at::Tensor written = at::zeros({std::ssize(buffers_)}, at::kByte);
    auto* flags = written.mutable_data_ptr<uint8_t>();
    for (size_t i = 0; i < buffers_.size(); ++i) flags[i] = is_written(i) ? 1 : 0;
    group.all_reduce(written, ReduceOp::kMax);
    std::vector<at::Tensor> changed;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (flags[i] != 0) changed.push_back(buffers_[i]);
    }
    ddp::broadcast_from_first(group, changed);
    if (!changed.empty()) note_values();
  }

 private:
  /// To compare on a GPU would be to wait for it.
  bool is_written(size_t i) const {
    return !buffers_[i].is_cpu() || !at::equal(buffers_[i], values_[i]);
  }
  void note_values() {
    const at::NoGradGuard no_grad;
    values_.resize(buffers_.size());
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (!buffers_[i].is_cpu()) continue;
      if (values_[i].defined()) {
        values_[i].copy_(buffers_[i]);
      } else {
        values_[i] = buffers_[i].detach().clone();
      }
    }
  }

  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> values_;  ///< as they were last agreed on
};

class Ddp final : public Strategy {
 public:
  explicit Ddp(const StrategyContext& context)
      : group_(context.group), options_(checked(context.ddp)) {}

  std::string_view name() const override { return "ddp"; }
  DataSlice slice() const override { return {group_.rank(), group_.size()}; }

  void setup(torch::nn::Module& module, at::Device device) override {
    module.to(device);
    const std::vector<NamedTensor> tensors = ddp::tensors_of(module);
    ddp::check_same_tensors(group_, tensors);
    std::vector<at::Tensor> values;
    for (const NamedTensor& tensor : tensors) values.push_back(tensor.tensor);
    ddp::broadcast_from_first(group_, values);
    Part& part = part_of(module);
    part.reducer.reset();
    part.reducer = std::make_unique<ddp::Reducer>(group_, named_parameters(module), options_);
    part.buffers = std::make_unique<Buffers>(module);
  }

  void forget() override { parts_.clear(); }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    return optim::build_optimizer(config, std::move(parameters));
  }

  void backward(const at::Tensor& loss, bool synchronize) override {
    for (Part& part : parts_) part.reducer->begin(synchronize);
    levin::backward(loss);
    if (!synchronize) return;
    const std::vector<bool> touched = touched_anywhere();
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!touched[i]) {
        parts_[i].reducer->skip();
        continue;
      }
      parts_[i].reducer->finish();
      if (options_.broadcast_buffers) parts_[i].buffers->synchronize(group_);
    }
  }

  at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                            double norm_type) override {
    return optim::clip_grad_norm(parameters, max_norm, norm_type);
  }

  at::Tensor all_reduce(const at::Tensor& value, ReduceOp op) override {
    at::Tensor reduced = value.detach().clone();
    group_.all_reduce(reduced, op);
    return reduced;
  }

  std::vector<State> all_gather(const State& state) override { return group_.all_gather(state); }
  State broadcast(const State& state) override { return group_.broadcast(state, 0); }

  State state_dict() const override {
    State state;
    size_t number = 0;
    for (const Part& part : parts_) {
      state.set(std::to_string(number++), part.reducer->state_dict());
    }
    return state;
  }

  void load_state_dict(const State& state) override {
    size_t number = 0;
    for (Part& part : parts_) {
      const std::string key = std::to_string(number++);
      if (state.contains(key)) part.reducer->load_state_dict(state.child(key));
    }
  }

 private:
  struct Part {
    const torch::nn::Module* module;
    std::unique_ptr<ddp::Reducer> reducer = nullptr;
    std::unique_ptr<Buffers> buffers = nullptr;
  };

  Part& part_of(const torch::nn::Module& module) {
    for (Part& part : parts_) {
      if (part.module == &module) return part;
    }
    return parts_.emplace_back(Part{&module});
  }

  /// Of several modules (as of a GAN) one backward often concerns one.
  std::vector<bool> touched_anywhere() {
    if (parts_.size() == 1) return {true};
    const at::Tensor touched = at::zeros({static_cast<int64_t>(parts_.size())}, at::kByte);
    auto* flags = touched.mutable_data_ptr<uint8_t>();
    for (const Part& part : parts_) *flags++ = part.reducer->touched();
    group_.all_reduce(touched, ReduceOp::kMax);
    std::vector<bool> agreed;
    for (size_t i = 0; i < parts_.size(); ++i) agreed.push_back(touched[i].item<bool>());
    return agreed;
  }

  comm::ProcessGroup group_;
  DdpOptions options_;
  std::vector<Part> parts_;  ///< in the order of setup, which is the same on every rank
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(const StrategyContext& context) {
  return std::make_unique<Ddp>(context);
}

}  // namespace levin
