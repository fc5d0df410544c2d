#include "levin/strategy/ddp/recordable.h"

#include <utility>

#include "levin/base/check.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/gradient_exchange.h"

namespace levin {
namespace {

class RecordableDdp final : public Strategy {
 public:
  explicit RecordableDdp(const StrategyContext& context)
      : Strategy("ddp", context.group), exchanges_(context.group, recordable(context.ddp)) {}

  void setup(torch::nn::Module& module, at::Device device) override {
    ddp::place_as_first(data_group(), module, device);
    exchanges_.add(module);
  }

  bool backward(const at::Tensor& loss, bool synchronize, bool) override {
    check_has_loss(loss, name());
    if (synchronize) exchanges_.begin();
    levin::backward(loss);
    if (synchronize) exchanges_.reduce();
    return true;
  }

  void update(optim::Optimizer& optimizer) override {
    optimizer.step();
    exchanges_.agree_on_buffers();
  }
  void agree_on_buffers() override { exchanges_.agree_on_buffers(); }

 private:
  static DdpOptions recordable(DdpOptions options) {
    LEVIN_CHECK(ddp::GradientExchange::does(options), "strategy.ddp.options",
                "--compile replay takes no --ddp-comm-hook, --ddp-static-graph, --ddp-overlap and "
                "--ddp-overlap-update, and got {}; leave them out, or set --compile no",
                changed_ddp_options(options));
    options.find_unused_parameters = false;  // ranks would have to tell each other in each step
    return options;
  }

  ddp::Exchanges exchanges_;
};

}  // namespace

std::unique_ptr<Strategy> make_recordable_ddp(const StrategyContext& context) {
  return std::make_unique<RecordableDdp>(context);
}

}  // namespace levin
