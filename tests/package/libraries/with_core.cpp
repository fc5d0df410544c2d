// Trains a step, and opens a device of XLA, for which levin::core loads levin::xla.
#include <torch/nn.h>

#include <iostream>

#include <levin/accelerator/accelerator.h>
#include <levin/base/error.h>
#include <levin/optim/optim.h>
#include <levin/xla/device/runtime.h>

int main(int argc, char** argv) {
  levin::Accelerator accelerator;
  auto [model, optimizer] =
      accelerator.prepare(torch::nn::Linear(4, 2), levin::optim::sgd({.lr = 0.1}));
  accelerator.backward(model->forward(torch::ones({3, 4})).sum());
  optimizer.step();
  try {
    levin::xla::Runtime::open({.plugin = argc > 1 ? argv[1] : "no_such_plugin"});
    std::cout << "xla is open\n";
  } catch (const levin::Error& error) {
    std::cout << error.what() << "\n";
  }
}
