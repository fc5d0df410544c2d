#include "levin/graph/compile/host_part.h"

#include <fmt/format.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <algorithm>
#include <utility>

#include "levin/graph/record/current_place.h"

namespace levin::graph {

namespace {

thread_local HostPart* current_recording = nullptr;

}  // namespace

HostPart* HostPart::current() { return current_recording; }

HostPart* HostPart::set_current(HostPart* recording) {
  return std::exchange(current_recording, recording);
}

void HostPart::with(const at::Tensor& value, TensorAction action, std::string label) {
  const auto known =
      std::ranges::find_if(values_, [&](const at::Tensor& other) { return other.is_same(value); });
  const auto number = static_cast<size_t>(known - values_.begin());
  if (known == values_.end()) values_.push_back(value);
  with_.emplace_back(number, std::move(action));
  labels_.push_back(std::move(label));
}

std::string HostPart::difference_to(const HostPart& other) const {
  if (labels_ == other.labels_) return "";
  const auto [mine, others] = std::ranges::mismatch(labels_, other.labels_);
  if (others == other.labels_.end()) return fmt::format("it no longer does '{}'", *mine);
  if (mine == labels_.end()) return fmt::format("it does '{}' too", *others);
  return fmt::format("it does '{}', was '{}'", *others, *mine);
}

void HostPart::depends_on(std::string what, std::function<ExactNumber()> number) {
  if (is_paused_) return;
  const ExactNumber value = number();
  dependences_.push_back({std::move(what), std::move(number), value, torch::unwind::unwind()});
}

void HostPart::refuse(std::string reason) {
  if (refused_.empty()) refused_ = with_place(std::move(reason), current_place());
}

}  // namespace levin::graph
