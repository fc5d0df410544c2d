#pragma once
// Units of a module that each rank gathers for itself, and what sees operators: forward and backward
// without the rest of a strategy.

#include <functional>
#include <memory>
#include <vector>

#include "levin/graph/record/interposer.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/fsdp/gather/lazy_gather.h"
#include "levin/strategy/fsdp/plan_units.h"

namespace levin::test {

struct Gathered {
  struct Options {
    int64_t gathered_bytes = 0;
    fsdp::Resharding resharding = {};
    fsdp::MemoryPlace memory = {};
  };
  struct PassOptions {
    std::function<void()> before_backward = [] {};
    std::function<void()> after_backward = [] {};
    bool updates = true;  ///< values change after the pass
  };

  Gathered(const comm::ProcessGroup& group, const torch::nn::Module& net, const Options& options)
      : mesh(group, {{"dp", group.size()}}), gather(group, options.gathered_bytes) {
    for (const auto& plan : fsdp::plan_units(net, 1 << 20).units) {
      units.push_back(std::make_unique<fsdp::Unit>(plan.name, plan.parameters, mesh,
                                                   fsdp::UnitOptions{.memory = options.memory}));
      units.back()->take_memory(at::kCPU);
      units.back()->place();
      gather.add(*units.back(), options.resharding);
    }
  }
  Gathered(const comm::ProcessGroup& group, const torch::nn::Module& net)
      : Gathered(group, net, Options()) {}

  /// Forward and backward of what that gives; the loss.
  template <class Loss>
  at::Tensor pass(const Loss& loss_of, const PassOptions& options) {
    for (const auto& unit : units) unit->begin_pass();
    at::Tensor loss;
    {
      const graph::HandlerScope scope(gather);
      gather.begin(fsdp::LazyGather::Pass::kForward);
      loss = loss_of();
      forward_gathers = gather.cache().num_gathers();
      options.before_backward();
      gather.begin(fsdp::LazyGather::Pass::kBackward);
      backward_as_planned(loss, [this](const auto& nodes) { gather.plan_backward(nodes); });
      options.after_backward();
    }
    for (const auto& unit : units) unit->end_pass();
    if (options.updates) {
      gather.drop();
      gather.learn_uses();
    }
    return loss.detach();
  }
  template <class Loss>
  at::Tensor pass(const Loss& loss_of) {
    return pass(loss_of, PassOptions());
  }

  comm::DeviceMesh mesh;
  std::vector<std::unique_ptr<fsdp::Unit>> units;
  fsdp::LazyGather gather;
  int64_t forward_gathers = 0;
};

}  // namespace levin::test
