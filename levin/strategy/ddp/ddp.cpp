#include "levin/strategy/ddp/ddp.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/buffers.h"
#include "levin/strategy/ddp/recorded.h"
#include "levin/strategy/ddp/reducer.h"

namespace levin {
namespace {

class Ddp final : public Strategy, public Joinable {
 public:
  explicit Ddp(const StrategyContext& context)
      : Strategy("ddp", context.group), group_(context.group), options_(context.ddp) {}

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override {
    ddp::place_as_first(group_, module, device, values);
    Part& part = part_of(module);
    LEVIN_CHECK(!options_.overlap_update || parts_.size() == 1, "strategy.ddp.options",
                "--ddp-overlap-update goes with the gradients of one module and this is the "
                "second; leave it out, or make them one");
    part.reducer.reset();
    part.parameters = own_parameters(module);
    part.reducer = std::make_unique<ddp::Reducer>(group_, part.parameters, options_);
    std::vector<const torch::nn::Module*> modules;
    for (const Part& each : parts_) modules.push_back(each.module);
    buffers_ = ddp::Buffers(modules);
  }

  std::unique_ptr<optim::Optimizer> build_optimizer(const OptimizerConfig& config,
                                                    std::vector<NamedTensor> parameters) override {
    for (Part& part : parts_) part.cut_optimizer = nullptr;
    auto optimizer = optim::build_optimizer(config, std::move(parameters));
    const std::vector<int64_t> one_wave(optimizer->parameters().size(), 0);
    LEVIN_CHECK(!options_.overlap_update || optimizer->set_waves(one_wave), "strategy.ddp.options",
                "--ddp-overlap-update updates some parameters before others and {} takes whole "
                "steps alone; leave it out, or take optim::sgd, adam or adamw over parameters in "
                "float32",
                optimizer->name());
    return optimizer;
  }

  bool backward(const at::Tensor& loss, bool synchronize, bool has_gradients) override {
    wait_gradients();
    if (!loss.defined()) return join_backward(has_gradients);
    if (synchronize) begin_joined();
    for (Part& part : parts_) part.reducer->begin(synchronize);
    levin::backward(loss);
    for (Part& part : parts_) part.reducer->end();
    if (synchronize) finish();
    return true;
  }

  void wait_gradients() override {
    for (Part& part : parts_) {
      if (!std::exchange(part.pending, false)) continue;
      if (!std::exchange(part.settled, false)) part.reducer->settle_all();
      part.reducer->finish();
    }
  }

  void update(optim::Optimizer& optimizer) override {
    for (Part& part : parts_) part.reducer->check_backward();
    step(optimizer);
    if (std::exchange(buffers_differ_, false)) agree_on_buffers();
  }

  /// Not in the middle of a step: a backward that is yet to come may need what its forward pass
  /// has saved of them.
  void meet(Meeting meeting) override {
    if (meeting == Meeting::kAgreeOnBuffers && options_.broadcast_buffers) {
      buffers_.synchronize(group_);
    }
  }

  void begin_join(bool by_present) override {
    joining_ = true;
    by_present_ = by_present;
  }
  void end_join() override {
    joining_ = false;
    for (Part& part : parts_) part.reducer->set_scale(1);
  }
  bool shadow_step() override {
    if (!joining_) return false;
    wait_gradients();
    present_ = count_present(false);
    if (present_ == 0) {
      end_join();
      return false;
    }
    scale_by_present();
    for (Part& part : parts_) {
      part.reducer->begin(true);
      part.reducer->end();
    }
    finish();
    return true;
  }

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
    std::vector<NamedTensor> parameters = {};
    std::unique_ptr<ddp::Reducer> reducer = nullptr;
    bool pending = false;  ///< gradients are on their way
    bool settled = false;  ///< or have come already, and only finish() is left
    const optim::Optimizer* cut_optimizer = nullptr;
    int64_t cut_layout = 0;
  };

  Part& part_of(const torch::nn::Module& module) {
    for (Part& part : parts_) {
      if (part.module == &module) return part;
    }
    return parts_.emplace_back(Part{&module});
  }

  /// A parameter that two modules share is reduced with the first of them.
  std::vector<NamedTensor> own_parameters(const torch::nn::Module& module) const {
    std::vector<NamedTensor> taken;
    for (const Part& part : parts_) {
      if (part.module == &module) continue;
      taken.insert(taken.end(), part.parameters.begin(), part.parameters.end());
    }
    return ddp::parameters_apart_from(taken, module);
  }

  /// This rank has no loss, and what the others' backward waits for.
  bool join_backward(bool has_gradients) {
    begin_joined();
    for (Part& part : parts_) {
      part.reducer->begin(true);
      part.reducer->end();
    }
    launch_rest(touched_anywhere(has_gradients), has_gradients);
    bool has_some = false;
    for (Part& part : parts_) {
      if (!part.pending) continue;
      part.settled = true;
      part.pending = part.reducer->settle_all();
      has_some |= part.pending;
    }
    if (!options_.overlap_update) wait_gradients();
    return has_some;
  }

  void step(optim::Optimizer& optimizer) {
    const bool in_waves =
        parts_.size() == 1 && parts_[0].pending && !parts_[0].settled && cut_in_waves(optimizer);
    if (!in_waves) {
      wait_gradients();
      return optimizer.step();
    }
    Part& part = parts_[0];
    part.pending = false;
    for (size_t i = 0; i < part.reducer->num_buckets(); ++i) {
      part.reducer->settle(i);
      optimizer.step_wave(static_cast<int64_t>(i));
    }
    part.reducer->finish();
  }

  /// Ranks that still have data.
  int64_t count_present(bool here) {
    const at::Tensor present = at::zeros({1}, at::kLong);
    present.fill_(here ? 1 : 0);
    group_.all_reduce(present, ReduceOp::kSum);
    return present.item<int64_t>();
  }
  void begin_joined() {
    if (!joining_) return;
    present_ = count_present(true);
    scale_by_present();
  }
  void scale_by_present() {
    const bool mean = options_.gradient_reduction == "mean" && by_present_;
    const double scale =
        mean ? static_cast<double>(group_.size()) / static_cast<double>(present_) : 1;
    for (Part& part : parts_) part.reducer->set_scale(scale);
  }

  /// A wave for each bucket.
  bool cut_in_waves(optim::Optimizer& optimizer) {
    Part& part = parts_[0];
    if (part.cut_optimizer == &optimizer && part.cut_layout == part.reducer->layout()) return true;
    std::vector<int64_t> waves;
    for (const NamedTensor& parameter : optimizer.parameters()) {
      waves.push_back(static_cast<int64_t>(part.reducer->bucket_of(parameter.tensor).value_or(0)));
    }
    if (!optimizer.set_waves(std::move(waves))) return false;
    part.cut_optimizer = &optimizer;
    part.cut_layout = part.reducer->layout();
    return true;
  }

  void finish() {
    launch_rest(touched_anywhere(false), /*counts=*/true);
    if (!options_.overlap_update) wait_gradients();
  }

  /// counts: see Reducer::launch_rest.
  void launch_rest(const std::vector<bool>& touched, bool counts) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].settled = false;
      if (!touched[i]) {
        parts_[i].reducer->skip();
        continue;
      }
      parts_[i].reducer->launch_rest(counts);
      parts_[i].pending = true;
    }
    // In a loop that takes its steps without update() it is here that they agree.
    if (std::exchange(buffers_differ_, true)) agree_on_buffers();
  }

  /// Of several modules (as of a GAN) one backward often concerns one. joins: without a backward of
  /// its own this rank has gradients of those it has touched before.
  std::vector<bool> touched_anywhere(bool joins) {
    if (parts_.size() == 1) return {true};
    const at::Tensor touched = at::zeros({static_cast<int64_t>(parts_.size())}, at::kByte);
    auto* flags = touched.mutable_data_ptr<uint8_t>();
    for (const Part& part : parts_) {
      *flags++ = part.reducer->touched() || (joins && part.reducer->holds_gradients());
    }
    group_.all_reduce(touched, ReduceOp::kMax);
    std::vector<bool> agreed;
    for (size_t i = 0; i < parts_.size(); ++i) agreed.push_back(touched[i].item<bool>());
    return agreed;
  }

  comm::ProcessGroup group_;
  DdpOptions options_;
  bool joining_ = false;
  bool by_present_ = false;
  int64_t present_ = 0;
  ddp::Buffers buffers_;         ///< of all parts
  bool buffers_differ_ = false;  ///< since the last backward that synchronized
  std::vector<Part> parts_;      ///< in the order of setup, which is the same on every rank
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(const StrategyContext& context) {
  if (context.recordable) {
    DdpOptions options = context.ddp;
    if (ddp::GradientExchange::does(options)) {
      options.find_unused_parameters = false;  // ranks would have to tell each other in each step
    }
    return std::make_unique<ddp::RecordedDdp>("ddp", context.group, options, "--compile replay");
  }
  return std::make_unique<Ddp>(context);
}

}  // namespace levin
