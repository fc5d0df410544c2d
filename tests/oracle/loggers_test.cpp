// The loggers write the same as torch.utils.tensorboard, and Python's readers read it
// (loggers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/observe/logger.h"
#include "tests/oracle/python.h"

namespace loggers_of_python {
namespace {

class LoggersOfPython : public levin::test::PythonTest {};

std::map<std::string, at::Tensor> logged_tensors() {
  torch::manual_seed(3);
  std::map<std::string, at::Tensor> tensors = {
      {"image CHW float", torch::randn({3, 7, 5}) * 0.4 + 0.5},  // some are cut off
      {"image CHW half", torch::rand({1, 16, 9}).to(at::kHalf)},
      {"image HWC bytes", torch::randint(0, 256, {6, 4, 4}, at::kByte)},
      {"image HWC double", torch::linspace(0, 1, 300, at::kDouble).reshape({10, 10, 3})},
      {"image HW smooth", torch::linspace(0, 1, 2560).reshape({64, 40})},
      {"image HW pixel", torch::full({1, 1}, 255, at::kByte)},
      {"histogram normal", torch::randn({1000})},
      {"histogram positive", torch::rand({20, 3}) + 3},
      {"histogram negative", -torch::rand({50}, at::kDouble)},
      {"histogram zeros", torch::zeros({4})},
      {"histogram one", torch::full({1}, 2.5)},
      {"histogram integers", torch::arange(-5, 6)},
      {"histogram far", torch::tensor({1e-30, 1e15, -1e18, 3.0}, at::kDouble)},
      {"histogram not finite", torch::tensor({std::nan(""), 1.0, HUGE_VAL, -2.0}, at::kDouble)}};
  return tensors;
}

TEST_F(LoggersOfPython, WriteWhatSummaryWriterWritesAndPythonReads) {
  const std::string save_dir = file("").string();
  const auto board = levin::tensorboard_logger(
      {.save_dir = save_dir, .version = 0, .log_graph = true, .hp_metrics = {"val_acc"}});
  levin::State all;
  for (const auto& [name, tensor] : logged_tensors()) {
    all.set(name, tensor.clone());
    if (name.starts_with("image")) {
      const std::string format = name.substr(6, name.find(' ', 6) - 6);
      board->log_image(name, tensor, 5, format);
    } else {
      board->log_histogram(name, tensor, 6);
    }
  }
  levin::save_weights(file("tensors.safetensors"), all);
  board->log_text("said", "**hello** \xc3\xbc", 7);
  board->log_hyperparams(
      {{"lr", "0.001"}, {"epochs", "3"}, {"kind", "adam"}, {"zip", "007"}, {"shuffle", "true"}});
  struct Net : torch::nn::Module {
    Net() {
      register_module("net", torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::ReLU(),
                                                   torch::nn::Linear(3, 1)));
    }
  };
  board->log_graph(Net());
  board->log_metrics({{"loss", 0.5}}, 1, 3);
  board->log_metrics({{"bad \xff", 0.5}}, 1, 9);
  board->finalize("success");
  const auto lines = levin::jsonl_logger({.save_dir = save_dir, .version = 0});
  lines->log_metrics({{"loss", 0.1}, {"big", 1e300}}, 1, 3);
  lines->log_metrics(
      {{"nan", NAN}, {"low", -INFINITY}, {"high", INFINITY}, {"\xc3\xbc \"quoted\"\n", 2}}, 1, 4);
  std::string output;
  EXPECT_EQ(run("loggers.py", "'" + save_dir + "'", &output), 0) << output;
  EXPECT_THAT(output, ::testing::HasSubstr("all equal"));
}

}  // namespace
}  // namespace loggers_of_python
