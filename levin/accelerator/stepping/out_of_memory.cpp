#include "levin/accelerator/stepping/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include "levin/base/error.h"

namespace levin {
namespace {

/// They tell errors of memory that have no type of their own.
constexpr std::array<std::string_view, 6> kWords = {"DefaultCPUAllocator: can't allocate memory",
                                                    "DefaultCPUAllocator: not enough memory",
                                                    "CUDA out of memory",
                                                    "CUDA error: out of memory",
                                                    "CUBLAS_STATUS_ALLOC_FAILED",
                                                    "CUDNN_STATUS_ALLOC_FAILED"};

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const std::string_view what = error.what();
  return std::ranges::any_of(
      kWords, [&](std::string_view words) { return what.find(words) != std::string_view::npos; });
}

std::string memory_hint(const std::exception& error, const StepInMemory& step) {
  if (!is_out_of_memory(error)) return "";
  std::string batch;
  if (step.batch_size > 0) batch = fmt::format(" with a batch_size of {}", step.batch_size);
  std::string text = fmt::format("{} ran out of memory in a step{}", step.device.str(), batch);
  if (step.batch_size != 1) {
    text += fmt::format(
        "; lower batch_size and raise accumulate_grad_batches (gradient_accumulation_steps) from "
        "{} by the same factor, which keeps the optimizer steps the same",
        step.accumulated);
  }
  text +=
      "; wrap the model's blocks in levin::activation_checkpoint, which recomputes their "
      "activations in backward";
  if (!step.is_half) text += "; set --precision bf16-mixed, which halves most activations";
  if (!step.divides_parameters) {
    text +=
        "; set --strategy fsdp on several devices, which shards parameters, gradients and "
        "optimizer state";
  }
  return Error("accelerator.memory", text).what();
}

}  // namespace levin
