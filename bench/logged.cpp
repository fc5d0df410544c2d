// What a step pays for logging: LoggedValues::log by kind of value, and the progress line's count.
#include <benchmark/benchmark.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <torch/torch.h>

#include "levin/observe/logger.h"
#include "levin/observe/progress.h"

namespace {

using levin::LoggedValues;
using levin::LogOptions;

void step_logs(benchmark::State& state, const at::Tensor& value, const LogOptions& options) {
  const auto num_values = state.range(0);
  std::vector<std::string> names;
  for (int64_t i = 0; i < num_values; ++i) names.push_back("train_loss_" + std::to_string(i));
  LoggedValues logged(true, false);
  for (auto _ : state) {
    logged.begin_step(64);
    for (const std::string& name : names) logged.log(name, value, options);
  }
  state.SetItemsProcessed(state.iterations() * num_values);
}

void log_tensor_on_step(benchmark::State& state) {
  step_logs(state, torch::ones({}, at::requires_grad()), {});
}
BENCHMARK(log_tensor_on_step)->Arg(1)->Arg(10);

void log_tensor_on_step_and_epoch(benchmark::State& state) {
  step_logs(state, torch::ones({}, at::requires_grad()), {.on_epoch = true});
}
BENCHMARK(log_tensor_on_step_and_epoch)->Arg(1)->Arg(10);

// As a user writes it: the options are made at every call.
void log_with_new_options(benchmark::State& state) {
  const at::Tensor value = torch::ones({});
  LoggedValues logged(true, false);
  for (auto _ : state) {
    logged.begin_step(64);
    logged.log("train_loss", value, {.prog_bar = true});
  }
}
BENCHMARK(log_with_new_options);

void log_out_of_order(benchmark::State& state) {
  LoggedValues logged(true, false);
  for (auto _ : state) {
    logged.begin_step(64);
    for (const char* name : {"a", "b", "c", "d"}) logged.log(name, 1.0);
    logged.begin_step(64);
    for (const char* name : {"d", "c", "b", "a"}) logged.log(name, 1.0);
  }
  state.SetItemsProcessed(state.iterations() * 8);
}
BENCHMARK(log_out_of_order);

void read_step_values(benchmark::State& state) {
  LoggedValues logged(true, false);
  logged.begin_step(64);
  for (const char* name : {"train_loss", "train_acc", "grad_norm"}) logged.log(name, 1.0);
  for (auto _ : state) benchmark::DoNotOptimize(logged.step_values(levin::LogTarget::kLogger));
}
BENCHMARK(read_step_values);

void count_a_step(benchmark::State& state) {
  int screen = -1, terminal = -1;
  winsize size{24, 100, 0, 0};
  if (openpty(&screen, &terminal, nullptr, nullptr, &size) != 0) {
    state.SkipWithError("no pseudo-terminal");
    return;
  }
  levin::ProgressLine line({.fd = terminal});
  line.start("epoch 1/1", -1);
  int64_t due = 0;
  for (auto _ : state) due += line.advance() ? 1 : 0;
  benchmark::DoNotOptimize(due);
}
BENCHMARK(count_a_step);

}  // namespace

BENCHMARK_MAIN();
