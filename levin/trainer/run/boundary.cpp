#include "levin/trainer/run/boundary.h"

#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstring>
#include <utility>

#include "levin/base/log.h"
#include "levin/graph/fake/fake_tensors.h"

namespace levin::detail {
namespace {

/// A larger one is a mask or a queue of samples, not what a layer keeps of its batches.
constexpr size_t kMostBytes = size_t{1} << 16;

bool is_quick_to_copy(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided &&
         tensor.is_non_overlapping_and_dense() && tensor.nbytes() <= kMostBytes;
}

}  // namespace

BufferPlaces::BufferPlaces(const torch::nn::Module& module) {
  for (const auto& buffer : module.named_buffers()) {
    const at::Tensor& tensor = buffer.value();
    if (!tensor.defined() || tensor.numel() == 0) continue;
    if (is_quick_to_copy(tensor)) {
      buffers_.push_back({tensor, std::vector<std::byte>(tensor.nbytes())});
    } else {
      left_out_.push_back(buffer.key());
    }
  }
}

void BufferPlaces::note() {
  for (Buffer& buffer : buffers_) {
    if (graph::has_no_memory(buffer.tensor)) continue;  // `levin plan` records the step
    std::memcpy(buffer.bytes.data(), buffer.tensor.const_data_ptr(), buffer.bytes.size());
  }
}

void BufferPlaces::go_back() {
  for (Buffer& buffer : buffers_) {
    if (graph::has_no_memory(buffer.tensor)) continue;
    std::memcpy(buffer.tensor.mutable_data_ptr(), buffer.bytes.data(), buffer.bytes.size());
  }
}

Boundary::Boundary(const torch::nn::Module& module, DataLoader loader, LoggedValues& values,
                   Engine& engine)
    : loader_(std::move(loader)), values_(values), stepping_(engine.stepping()), buffers_(module) {}

void Boundary::note(const Progress& progress, int64_t updates) {
  progress_ = progress;
  updates_ = updates;
  loader_.mark();
  values_.mark();
  step_ = stepping_.snapshot();
  buffers_.note();
}

bool Boundary::go_back(Progress& progress, int64_t updates) {
  if (updates != updates_ || !loader_.rewind()) return false;
  progress = progress_;
  values_.rewind();
  stepping_.restore(*step_);
  buffers_.go_back();
  if (const auto& left_out = buffers_.left_out(); !left_out.empty()) {
    log::warn("trainer: the buffers {} keep the values that the failed step left in them",
              fmt::join(left_out, ", "));
  }
  return true;
}

}  // namespace levin::detail
