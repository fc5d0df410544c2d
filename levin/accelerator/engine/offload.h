#pragma once
// --offload: checks its options and opens the file of the optimizers' state. Not for users.

#include <ATen/core/Tensor.h>

#include <memory>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"
#include "levin/optim/offload/state_memory.h"

namespace levin::detail {

/// Throws Error "accelerator.offload" for unknown words, numbers out of range, options without --offload, and for what
/// does not work with it: parameters and files with a GPU, XLA devices, recorded steps.
LEVIN_API void check_offload(const AcceleratorOptions& options, at::Device device);

/// Returns the memory for optimizers' state, a file or for a GPU pinned memory of the host; nullptr without --offload.
/// The folder of the file is made. Throws what files::ScratchFile::create throws.
std::shared_ptr<optim::StateMemory> open_state_memory(const AcceleratorOptions& options,
                                                      at::Device device);

/// Logs where the state is, and how large it is.
void say_where_state_is(const optim::StateMemory& memory);

}  // namespace levin::detail
