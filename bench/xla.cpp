// What a call into a PJRT plugin costs: executing a small program, moving tensors, and how much of
// the compiler's time the cache on disk saves. Without a CPU plugin nothing is measured.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>

#include "levin/base/error.h"
#include "levin/xla/pjrt/executable_cache.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using pjrt::HostMemory;

const pjrt::Client& client_of(int64_t devices) {
  static const pjrt::Plugin plugin(pjrt::find_plugin("cpu"));
  static std::map<int64_t, pjrt::Client> clients;
  const auto found = clients.find(devices);
  if (found != clients.end()) return found->second;
  return clients.emplace(devices, pjrt::Client(plugin, {.num_devices = devices})).first->second;
}

/// Runs what throws without a plugin.
template <class Body>
void measured(benchmark::State& state, const Body& body) {
  try {
    body();
  } catch (const levin::Error& error) {
    state.SkipWithError(error.what());
  }
}

/// The sum of n arguments, f32[4] each; on several devices, of the devices too.
std::string sum_text(int64_t n, int64_t devices) {
  std::string arguments, adds, group;
  for (int64_t i = 0; i < n; ++i) {
    arguments += fmt::format("{}%a{}: tensor<4xf32>", i > 0 ? ", " : "", i);
    if (i > 0) {
      adds += fmt::format("%s{} = stablehlo.add %{}, %a{} : tensor<4xf32>\n", i,
                          i > 1 ? fmt::format("s{}", i - 1) : "a0", i);
    }
  }
  const std::string last = n > 1 ? fmt::format("%s{}", n - 1) : "%a0";
  for (int64_t i = 0; i < devices; ++i) group += (i > 0 ? "," : "") + std::to_string(i);
  const std::string reduce = devices == 1 ? "return " + last + " : tensor<4xf32>"
                                          : R"(%r = "stablehlo.all_reduce"()" + last +
                                                R"() ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32> }) {replica_groups = dense<[[)" +
                                                group +
                                                fmt::format(
                                                    "]]> : tensor<1x{}xi64>}} : (tensor<4xf32>) -> "
                                                    "tensor<4xf32> return %r : tensor<4xf32>",
                                                    devices);
  return "module @sum { func.func @main(" + arguments + ") -> tensor<4xf32> {\n" + adds + reduce +
         " }}";
}

// Arguments, devices.
void execute(benchmark::State& state) {
  measured(state, [&] {
    const int64_t num_arguments = state.range(0), devices = state.range(1);
    const pjrt::Client& client = client_of(devices);
    const auto sum = client.compile(sum_text(num_arguments, devices), {.num_replicas = devices});
    std::vector<pjrt::Buffer> inputs, outputs;
    for (int64_t device = 0; device < devices; ++device) {
      for (int64_t i = 0; i < num_arguments; ++i)
        inputs.push_back(client.upload(torch::ones(4), device));
    }
    std::vector<const pjrt::Buffer*> arguments;
    for (const pjrt::Buffer& input : inputs) arguments.push_back(&input);
    for (auto _ : state) {
      sum.execute(arguments, outputs);
      outputs[0].await();
    }
  });
}
BENCHMARK(execute)
    ->Args({2, 1})
    ->Args({100, 1})
    ->Args({1000, 1})
    ->Args({2, 2})
    ->Args({100, 2})
    ->Args({2, 8})
    ->UseRealTime();

void upload(benchmark::State& state, HostMemory memory) {
  measured(state, [&] {
    const at::Tensor tensor = torch::ones(state.range(0));
    for (auto _ : state) client_of(1).upload(tensor, 0, memory).await();
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(tensor.nbytes()));
  });
}
BENCHMARK_CAPTURE(upload, during_call, HostMemory::kDuringCall)
    ->Arg(4)
    ->Arg(1 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(upload, until_transferred, HostMemory::kUntilTransferred)
    ->Arg(4)
    ->Arg(1 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(upload, shared, HostMemory::kShared)->Arg(4)->Arg(1 << 20)->UseRealTime();

void download(benchmark::State& state) {
  measured(state, [&] {
    const at::Tensor tensor = torch::ones(state.range(0));
    const pjrt::Buffer buffer = client_of(1).upload(tensor);
    for (auto _ : state) buffer.download_to(tensor);
  });
}
BENCHMARK(download)->Arg(4)->Arg(1 << 20)->UseRealTime();

void start_download(benchmark::State& state) {
  measured(state, [&] {
    const at::Tensor tensor = torch::ones(state.range(0));
    const pjrt::Buffer buffer = client_of(1).upload(tensor);
    for (auto _ : state) buffer.start_download_to(tensor).wait();
  });
}
BENCHMARK(start_download)->Arg(4)->Arg(1 << 20)->UseRealTime();

void compile(benchmark::State& state) {
  measured(state, [&] {
    for (auto _ : state) client_of(1).compile(sum_text(100, 1));
  });
}
BENCHMARK(compile)->UseRealTime()->Unit(benchmark::kMillisecond);

void compile_again_from_disk(benchmark::State& state) {
  measured(state, [&] {
    const auto folder =
        std::filesystem::temp_directory_path() / fmt::format("levin_bench_{}", ::getpid());
    for (auto _ : state) {
      pjrt::ExecutableCache({.folder = folder}).compile(client_of(1), sum_text(100, 1));
    }
    std::filesystem::remove_all(folder);
  });
}
BENCHMARK(compile_again_from_disk)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
