// levin env: what a bug report should hold.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <CLI/CLI.hpp>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/ranges.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>

#include "levin/base/check.h"
#include "levin/comm/mpi/mpi.h"
#include "levin/comm/nccl/nccl.h"
#include "levin/trainer/trainer.h"
#include "levin/xla/pjrt/plugin.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/measure.h"

namespace levin::tools {
namespace {

void line(std::string_view name, std::string_view value) {
  std::cout << fmt::format("{:<18} {}\n", name, value);
}

std::string yes(bool found, std::string_view detail = "") {
  if (!found) return "no";
  return detail.empty() ? "yes" : fmt::format("yes, {}", detail);
}

std::string compiler() {
#ifdef __clang__
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// The library that was loaded says its version in the top bytes of its ABI number.
std::string libtorch() {
  const uint64_t loaded = aoti_torch_abi_version();
  const std::string running =
      fmt::format("{}.{}.{}", loaded >> 56, (loaded >> 48) & 0xff, (loaded >> 40) & 0xff);
  if (running == TORCH_VERSION) return running;
  return fmt::format("{} (compiled against {})", running, TORCH_VERSION);
}

// The value of the first "key : value" line of a file of /proc, "unknown" where there is none.
std::string proc_value(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string text; std::getline(in, text);) {
    const size_t colon = text.find(':');
    if (!text.starts_with(key) || colon == std::string::npos) continue;
    const size_t value = text.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos) return text.substr(value);
  }
  return "unknown";
}

std::string memory() {
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return fmt::format("{:.1f} GiB", pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30));
}

// A CUDA build of LibTorch on a machine without a GPU has the kernels and no device.
bool has_cuda_build() { return c10::impl::hasDeviceGuardImpl(at::kCUDA); }

std::string cuda_devices() {
  if (!has_cuda_build()) return "no";
  return fmt::format("yes, {} devices", at::hasCUDA() ? at::getNumGPUs() : 0);
}

// LibTorch lists its build options: "..., USE_CUDA=1, USE_GLOO=ON, ...", in words that change.
bool built_with(const std::string& config, const std::string& part) {
  return config.find(part + "=ON") != std::string::npos ||
         config.find(part + "=1") != std::string::npos;
}

void print_machine() {
  line("cpu", proc_value("/proc/cpuinfo", "model name"));
  line("cores", fmt::format("{}, {} threads for an operator", std::thread::hardware_concurrency(),
                            at::get_num_threads()));
  line("cpu capability", at::get_cpu_capability());
  line("memory", memory());
}

std::string nccl(const std::string& config) {
  if (!has_cuda_build() || !built_with(config, "USE_NCCL")) return "no";
  return comm::has_nccl() ? "yes, in LibTorch"
                          : "no, LibTorch has it and levin was built without its headers";
}

// XLA's plugins are loaded when they are asked for: listed are those that would be found.
std::string xla() {
  if (!levin::xla::pjrt::is_available()) return "no";
  std::string plugins;
  for (const auto& file : levin::xla::pjrt::found_plugins()) {
    plugins +=
        fmt::format("\n{:<18}   {}: {}", "", file.kind.empty() ? "plugin" : file.kind, file.path);
  }
  return fmt::format("yes, PJRT {}, {}", levin::xla::pjrt::api_version(),
                     plugins.empty() ? "no plugin was found" : "plugins:" + plugins);
}

void print_parts() {
  const std::string config = at::show_config();
  line("cuda", cuda_devices());
  line("gloo", yes(built_with(config, "USE_GLOO"), "in LibTorch"));
  line("nccl", nccl(config));
  const auto mpi = comm::mpi_modules();
  line("mpi", yes(!mpi.empty(), fmt::format("{}", fmt::join(mpi, ", "))));
  line("xla", xla());
  line("mkl", yes(at::hasMKL()));
  line("onednn", yes(at::hasMKLDNN()));
  line("openmp", yes(at::hasOpenMP()));
}

}  // namespace

int env(int argc, char** argv) {
  CLI::App app(
      "Prints versions, the machine and the optional parts of the build.\nWith --measure it runs "
      "operators and collectives, and writes the machine's rates to a file that `levin plan "
      "--cluster` reads.",
      "levin env");
  MeasureOptions measured;
  app.add_option("--measure", measured.file,
                 "measure FLOP/s, bandwidths and collectives, and write them to this TOML file");
  app.add_option("--ranks", measured.ranks, "ranks that measure at once on this machine")
      ->capture_default_str();
  app.add_option("--backend", measured.backend, "backend of the measured collectives")
      ->capture_default_str();
  if (!parse_arguments(app, argc, argv, "tools.env")) return 0;
  if (!measured.file.empty()) {
    measure(measured);
    return 0;
  }
  line("levin", kVersion);
  line("build", fmt::format("{}, {}", LEVIN_BUILD_TYPE, compiler()));
  line("libtorch", libtorch());
  print_machine();
  print_parts();
  return 0;
}

}  // namespace levin::tools
