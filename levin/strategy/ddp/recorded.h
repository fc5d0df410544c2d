#pragma once
// RecordedDdp: ddp for steps that become programs. Gradients are averaged after backward, by
// operators that a recording has as nodes.

#include <string_view>

#include "levin/strategy/ddp/gradient_exchange.h"
#include "levin/strategy/strategy.h"

namespace levin::ddp {

/// The same weights bit for bit as make_ddp's, which overlaps the ranks' exchange with backward.
/// Every parameter of a module that a backward touches must have a gradient, else it throws Error
/// "strategy.ddp.unused". Of one rank it exchanges nothing.
class RecordedDdp : public Strategy {
 public:
  /// whose: what an error says takes no such options. Throws Error "strategy.ddp.options" for a
  /// comm hook, static graphs, exchanges without overlap and overlapped updates.
  RecordedDdp(std::string_view name, const comm::ProcessGroup& group, const DdpOptions& options,
              std::string_view whose);

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override;
  bool backward(const at::Tensor& loss, bool synchronize, bool) override;
  void update(optim::Optimizer& optimizer) override;

 protected:
  void meet(Meeting meeting) override {
    if (meeting == Meeting::kAgreeOnBuffers) exchanges_.agree_on_buffers();
  }

 private:
  Exchanges exchanges_;
  bool has_exchanged_ = false;
};

}  // namespace levin::ddp
