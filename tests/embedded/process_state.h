#pragma once
// What a program can set for its process, as text.

#include <c10/core/CPUAllocator.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <fmt/format.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>

namespace embedded {

using ProcessState = std::map<std::string, std::string>;

inline mode_t file_mask() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return mask;
}

/// Whether a large block comes from the system each time, as glibc has it at first.
inline bool large_blocks_are_mapped() {
#ifdef __GLIBC__
  const size_t before = ::mallinfo2().hblkhd;
  auto* block = static_cast<volatile char*>(std::malloc(31 << 20));  // more than the heap has free
  block[0] = 1;  // else the compiler leaves both calls out
  const bool mapped = ::mallinfo2().hblkhd > before;
  std::free(const_cast<char*>(block));
  return mapped;
#else
  return true;
#endif
}

/// The address sanitizer has an allocator of its own.
inline bool has_the_systems_allocator() {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return false;
#else
  return true;
#endif
#else
  return true;
#endif
}

inline ProcessState process_state() {
  ProcessState state;
  for (int signal = 1; signal < 32; ++signal) {
    struct sigaction action = {};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    state[fmt::format("the handler of signal {}", signal)] =
        fmt::format("{}", reinterpret_cast<void*>(action.sa_handler));
  }
  state["terminate"] = fmt::format("{}", reinterpret_cast<void*>(std::get_terminate()));
  for (char** entry = environ; *entry != nullptr; ++entry) state["variable " + std::string(*entry)];
  state["umask"] = fmt::format("{:o}", file_mask());
  state["threads"] = fmt::format("{}, {}", at::get_num_threads(), at::get_num_interop_threads());
  const at::Context& torch = at::globalContext();
  state["deterministic"] = fmt::format("{}, {}", torch.deterministicAlgorithms(),
                                       torch.deterministicAlgorithmsWarnOnly());
  state["benchmark"] = fmt::format("{}", torch.benchmarkCuDNN());
  state["onednn"] = fmt::format("{}", torch.userEnabledMkldnn());
  state["gradients"] = fmt::format("{}", at::GradMode::is_enabled());
  state["anomaly"] = fmt::format("{}", torch::autograd::AnomalyMode::is_enabled());
  state["default dtype"] = c10::toString(at::typeMetaToScalarType(at::get_default_dtype()));
  state["locale"] = std::setlocale(LC_ALL, nullptr);
  state["the tensors' allocator"] = fmt::format("{}", fmt::ptr(c10::GetCPUAllocator()));
  if (has_the_systems_allocator()) {
    state["allocator"] = large_blocks_are_mapped() ? "as it was" : "keeps what is freed";
  }
  return state;
}

/// A line for each that is another, and for each that came or went.
inline std::string difference(const ProcessState& before, const ProcessState& now) {
  std::string lines;
  for (const auto& [name, value] : before) {
    const auto found = now.find(name);
    if (found != now.end() && found->second == value) continue;
    lines += fmt::format("{} was '{}' and is {}\n", name, value,
                         found == now.end() ? "gone" : "'" + found->second + "'");
  }
  for (const auto& [name, value] : now) {
    if (!before.contains(name)) lines += fmt::format("{} is new: '{}'\n", name, value);
  }
  return lines;
}

}  // namespace embedded
