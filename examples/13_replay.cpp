// ./13_replay
// last line: difference=0.00
//
// A compiled training step: recorded once and replayed, with the same numbers, in a fraction of the time
// if the network is small. With a Trainer it is one option, --compile replay:
//
//   ./01_classifier --compile replay
//
// This example is for your own loop.

#include <chrono>
#include <cmath>
#include <cstdio>

#include <levin/levin.h>

struct Outcome {
  double loss = 0;          ///< of the last step
  double microseconds = 0;  ///< of one step
};

Outcome train(const std::string& compile, int64_t steps) {
  levin::AcceleratorOptions options;
  options.cpu = true;
  options.engine.compile = compile;
  levin::Accelerator accelerator(options);
  levin::seed_everything(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 128), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                            torch::nn::Linear(128, 10));
  auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}));

  // All that a step does to tensors stands in this function, and what changes comes in as its
  // arguments. What the host decides anew in each step (by another item(), by a counter) cannot be
  // replayed: then the log says so, and the function runs as it always did. A number that changes
  // from step to step, as a warm-up, is a levin::StepValue.
  auto step = accelerator.compile([&](const torch::Tensor& x, const torch::Tensor& y) {
    optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(model->forward(x), y);
    accelerator.backward(loss);
    accelerator.clip_grad_norm(1.0);
    optimizer.step();
    return loss;
  });

  Outcome outcome;
  const auto x = torch::randn({steps, 32, 64});
  const auto y = torch::randint(10, {steps, 32});
  std::chrono::steady_clock::time_point began;
  const int64_t warm_up = steps / 10;
  for (int64_t i = 0; i < steps; ++i) {
    if (i == warm_up) began = std::chrono::steady_clock::now();
    const torch::Tensor loss = step(x[i], y[i]);
    if (i + 1 == steps) outcome.loss = loss.item<double>();
  }
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - began;
  outcome.microseconds = time.count() / static_cast<double>(steps - warm_up);
  std::printf("compile=%-7s %6.1f us a step, loss %.6f, %ld of %ld steps replayed\n",
              compile.c_str(), outcome.microseconds, outcome.loss, step.report().replayed, steps);
  return outcome;
}

int main() {
  torch::set_num_threads(1);
  const Outcome eager = train("no", 2000);
  const Outcome replayed = train("replay", 2000);
  std::printf("a replayed step takes %.2f of the time\n",
              replayed.microseconds / eager.microseconds);
  std::printf("difference=%.2f\n", std::abs(eager.loss - replayed.loss));
}
