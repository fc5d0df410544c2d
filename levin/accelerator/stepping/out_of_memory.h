#pragma once
// Says what a step that ran out of memory was doing and what helps. LibTorch's own error names bytes alone,
// neither the batch nor the options of the run.

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <string>

#include "levin/accelerator/stepping/precision.h"
#include "levin/base/export.h"

namespace levin {

/// Returns whether LibTorch's allocators (c10::OutOfMemoryError of a GPU, the CPU allocator's message), CUDA's
/// libraries or operator new found no memory.
LEVIN_API bool is_out_of_memory(const std::exception& error);

/// The step that threw.
struct StepInMemory {
  at::Device device = at::kCPU;
  int64_t batch_size = 0;   ///< samples of the newest batch on this process; 0: there was none
  int64_t accumulated = 1;  ///< batches of an optimizer step
  bool is_half = false;     ///< the forward pass computes in bfloat16 or float16
  bool divides_parameters = false;  ///< strategy fsdp or zero
};

/// "accelerator.memory: ..." with the batch size and the options that need less memory and are not set yet;
/// empty where the error is not one of memory.
LEVIN_API std::string memory_hint(const std::exception& error, const StepInMemory& step);

}  // namespace levin
