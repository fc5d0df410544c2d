// The loop that a good user of LibTorch writes by hand: batches made before, torch::optim.
//
//   peer_libtorch --work mlp_sgd --steps 2000 --warmup 100

#include "bench/peers/work.h"

namespace {

std::unique_ptr<torch::optim::Optimizer> optimizer_of(const std::string& work,
                                                      std::vector<at::Tensor> parameters) {
  using namespace torch::optim;  // NOLINT: three lines of optimizers
  if (work == "gpt") return std::make_unique<AdamW>(std::move(parameters), AdamWOptions(3e-4));
  if (work.ends_with("_sgd")) return std::make_unique<SGD>(std::move(parameters), SGDOptions(0.01));
  return std::make_unique<Adam>(std::move(parameters), AdamOptions(1e-3));
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<peers::Options>(argc, argv);
  at::set_num_threads(1);
  peers::StepClock clock(options);
  peers::with_net(options.work, [&](auto& net) {
    const auto optimizer = optimizer_of(options.work, net->parameters());
    const auto data = peers::data_of(options.work, clock.last());
    const auto xs = data.x.split(data.batch_size), ys = data.y.split(data.batch_size);
    for (size_t i = 0; i < xs.size(); ++i) {
      clock();
      optimizer->zero_grad();
      const auto loss = peers::loss_of(net, xs[i], ys[i]);
      loss.backward();
      optimizer->step();
      clock.keep(loss);
    }
  });
  clock.report();
}
