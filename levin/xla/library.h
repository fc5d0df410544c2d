#pragma once
// Library: the functions of the library levin::xla that levin::core calls. levin::core does not link
// that library: it loads it when a program first opens a device of XLA, so that other programs do not
// pay for it.
// Not for users.

#include <memory>

#include "levin/base/export.h"
#include "levin/xla/device/runtime.h"

namespace levin::graph {
class CompileBackend;
}  // namespace levin::graph

namespace levin::xla {

struct Library {
  std::shared_ptr<Runtime> (*open)(const RuntimeOptions& options) = nullptr;
  std::shared_ptr<Runtime> (*current)() = nullptr;
  std::unique_ptr<graph::CompileBackend> (*make_engine)(std::shared_ptr<Runtime> runtime) = nullptr;
  bool (*is_compiling)() = nullptr;
};

/// levin::xla calls it when it is loaded.
LEVIN_API void provide(const Library& library);
/// Returns the library, which is loaded if it is not yet. Throws Error "xla.library" if it is not there.
LEVIN_API const Library& library();
/// Returns the library if it is loaded, else nullptr.
const Library* loaded_library();

}  // namespace levin::xla
