// levin's replay under a loop by hand: the first step runs as it is, the second is recorded, the
// others are replayed. `--mode eager` records nothing.

#include "levin/graph/replay/replay.h"

#include <optional>

#include "bench/peers/work.h"
#include "levin/graph/record/trace.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/strategy/backward.h"

namespace {

levin::OptimizerConfig optimizer_of(const std::string& work) {
  if (work == "mlp_sgd") return levin::optim::sgd({.lr = 0.01});
  if (work == "gpt") return levin::optim::adamw({.lr = 3e-4});
  return levin::optim::adam({.lr = 1e-3});
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<peers::Options>(argc, argv);
  at::set_num_threads(1);
  peers::with_net(options.work, [&](auto net) {
    peers::StepClock clock(options);
    const peers::Data data = peers::data_of(options.work, clock.last());
    const auto optimizer =
        levin::optim::build_optimizer(optimizer_of(options.work), levin::named_parameters(*net));
    const bool replays = options.mode != "eager" && optimizer->set_capturable(true);
    const auto step = [&](const at::Tensor& x, const at::Tensor& y) {
      optimizer->zero_grad();
      const at::Tensor loss = peers::loss_of(net, x, y);
      levin::backward(loss);
      optimizer->step();
      return loss;
    };
    std::optional<levin::graph::Replay> replay;
    levin::optim::Moved moved;
    for (int64_t i = 0; i < clock.last(); ++i) {
      clock();
      const at::Tensor x = data.x.narrow(0, i * data.batch_size, data.batch_size);
      const at::Tensor y = data.y.narrow(0, i * data.batch_size, data.batch_size);
      if (replay) {
        optimizer->before_replay();
        clock.keep((*replay)({x, y}).front());
        optimizer->replayed(moved);
      } else if (replays && i == 1) {
        at::Tensor loss;
        const auto recorded = levin::trace(
            [&](const at::Tensor& a, const at::Tensor& b) { return loss = step(a, b); }, {x, y});
        replay.emplace(recorded.graph());
        moved = optimizer->moved();
        const auto& report = replay->report();
        std::fprintf(stderr, "%ld operators, %ld of them allocate, %ld views, arena %.3f MB\n",
                     report.num_operators, report.num_allocating, report.num_views,
                     static_cast<double>(report.arena_bytes) / 1e6);
        clock.keep(loss);
      } else {
        clock.keep(step(x, y));
      }
    }
    clock.report();
  });
}
