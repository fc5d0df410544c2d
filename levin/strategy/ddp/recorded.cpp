#include "levin/strategy/ddp/recorded.h"

#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/stray_gradients.h"

namespace levin::ddp {

RecordedDdp::RecordedDdp(std::string_view name, const comm::ProcessGroup& group,
                         const DdpOptions& options, std::string_view whose)
    : Strategy(name, group), exchanges_(group, options) {
  LEVIN_CHECK(GradientExchange::does(options), "strategy.ddp.options",
              "{} takes no --ddp-comm-hook, --ddp-static-graph, --ddp-overlap and "
              "--ddp-overlap-update, and got {}; leave them out{}",
              whose, changed_ddp_options(options), name == "ddp" ? ", or set --compile no" : "");
}

void RecordedDdp::setup(torch::nn::Module& module, at::Device device, InitValues values) {
  // The ranks agree on the CPU, where XLA's tensors come from.
  const at::Device first = device.is_xla() ? at::Device(at::kCPU) : device;
  if (data_group().size() == 1) {
    if (is_on_meta(module)) materialize(module, {.device = first, .values = values});
    return module.to(device);
  }
  place_as_first(data_group(), module, first, values);
  module.to(device);
  exchanges_.add(module);
}

bool RecordedDdp::backward(const at::Tensor& loss, bool synchronize, bool) {
  LEVIN_CHECK(loss.defined(), "strategy.skipped_batch",
              "training_step gave no loss for the batch that ends a group, and steps of strategy "
              "'{}' that are recorded on several ranks need one; return a loss of weight 0 (see "
              "set_loss_weight), or set --compile no",
              name());
  if (synchronize) exchanges_.begin();
  levin::backward(loss);
  if (synchronize) exchanges_.reduce();
  has_exchanged_ |= synchronize;
  return true;
}

void RecordedDdp::update(optim::Optimizer& optimizer) {
  if (!has_exchanged_ && data_group().size() > 1)
    check_no_gradients(name(), optimizer.parameters());
  optimizer.step();
  exchanges_.agree_on_buffers();
}

}  // namespace levin::ddp
