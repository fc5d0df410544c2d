#pragma once
// Steps as programs: a function that is called again and again (a training step) is recorded as one
// program and then run without a call of it. The engine of graph::Compiled on the device "xla".
//
//   graph::Compiled step("step", {.engine = xla::make_engine(runtime)});

#include <memory>

#include "levin/base/export.h"
#include "levin/graph/compile/compile_backend.h"
#include "levin/xla/device/runtime.h"

namespace levin::xla {

/// Runtime::sync() does nothing within the function: all of it is one program. A number that the
/// host reads in between is computed beside it, and again before each run; other reads (a copy) end
/// the recording, and the function continues eagerly.
LEVIN_API std::unique_ptr<graph::CompileBackend> make_engine(std::shared_ptr<Runtime> runtime);

}  // namespace levin::xla
