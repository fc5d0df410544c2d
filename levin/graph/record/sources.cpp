// Finds the line of the user's code that ran an operator.
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/graph/record/current_place.h"
#include "levin/graph/record/recorder_impl.h"

namespace levin::graph {
namespace {

/// Returns the function's name without its arguments and anonymous namespaces.
std::string function_of(const torch::unwind::Frame& frame) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  std::string name = frame.funcname;
  for (size_t at = name.find(kUnnamed); at != std::string::npos; at = name.find(kUnnamed)) {
    name.erase(at, kUnnamed.size());
  }
  return name.substr(0, name.find('('));
}

/// Returns whether it is a source file: without debug information the symbolizer names the program.
bool is_source_file(std::string_view file) {
  const size_t dot = file.rfind('.');
  if (dot == std::string_view::npos) return false;
  for (const std::string_view extension : {"cpp", "cc", "cxx", "cu", "h", "hpp", "c"}) {
    if (file.substr(dot + 1) == extension) return true;
  }
  return false;
}

/// LibTorch's frames, the standard library's and levin's own lead to every operator.
bool is_plumbing(const torch::unwind::Frame& frame) {
  const std::string function = function_of(frame);
  for (const std::string_view part :
       {"at::", "c10::", "torch::", "std::", "levin::graph::", "levin::xla::", "levin::trace",
        "levin::interchange::", "levin::export_program", "levin::detail::", "levin::optim::",
        "levin::Accelerator::", "levin::Compiled", "levin::backward", "levin::Logged",
        "levin::Module::", "levin::Prepared", "levin::Stepping::", "levin::Trainer::"}) {
    const size_t at = function.find(part);
    if (at != std::string::npos && (at == 0 || function[at - 1] == ' ')) return true;
  }
  return function.empty() || function.starts_with("??");
}

std::string source_of(const torch::unwind::Frame& frame) {
  if (!is_source_file(frame.filename)) return function_of(frame);
  return fmt::format("{} at {}:{}", function_of(frame), frame.filename, frame.lineno);
}

}  // namespace

std::vector<std::string> sources_of(const std::vector<std::vector<void*>>& stacks) {
  std::unordered_map<void*, size_t> places;
  std::vector<void*> counters;
  for (const auto& stack : stacks) {
    for (void* counter : stack) {
      if (places.emplace(counter, counters.size()).second) counters.push_back(counter);
    }
  }
  std::vector<std::string> sources(stacks.size());
  if (counters.empty()) return sources;
  const auto frames = torch::unwind::symbolize(counters, torch::unwind::Mode::fast);
  for (size_t i = 0; i < stacks.size(); ++i) {
    for (void* counter : stacks[i]) {
      const torch::unwind::Frame& frame = frames[places.at(counter)];
      if (is_plumbing(frame)) continue;
      sources[i] = source_of(frame);
      break;
    }
  }
  return sources;
}

std::string current_place() { return place_of(torch::unwind::unwind()); }

std::string place_in(const std::string& backtrace) {
  // Lines end in "(0x7f0123456789 in libtorch.so)".
  constexpr std::string_view kAddress = "(0x";
  std::vector<void*> frames;
  for (size_t at = backtrace.find(kAddress); at != std::string::npos;
       at = backtrace.find(kAddress, at + 1)) {
    const char* first = backtrace.data() + at + kAddress.size();
    uintptr_t address = 0;
    const auto [end, error] =
        std::from_chars(first, backtrace.data() + backtrace.size(), address, 16);
    if (error == std::errc() && std::string_view(end).starts_with(" in ")) {
      frames.push_back(reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr)
    }
  }
  return place_of(frames);
}

std::string place_of(const std::vector<void*>& frames) {
  const std::string source = sources_of({frames}).front();
  return source.empty() ? "" : ", in " + source;
}

bool StackSearch::finds() {
  const std::scoped_lock lock(mutex_);
  const std::vector<void*> stack = torch::unwind::unwind();
  std::vector<void*> unknown;
  for (void* counter : stack) {
    if (!known_.contains(counter)) unknown.push_back(counter);
  }
  if (!unknown.empty()) {
    const auto frames = torch::unwind::symbolize(unknown, torch::unwind::Mode::fast);
    for (size_t i = 0; i < unknown.size(); ++i) {
      known_[unknown[i]] = std::ranges::any_of(words_, [&](std::string_view word) {
        return frames[i].funcname.find(word) != std::string::npos;
      });
    }
  }
  return std::ranges::any_of(stack, [this](void* counter) { return known_.at(counter); });
}

std::string with_place(std::string reason, const std::string& place) {
  return reason.insert(std::min(reason.find("; "), reason.size()), place);
}

}  // namespace levin::graph
