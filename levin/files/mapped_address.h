#pragma once
// Whether memory is a file's: its pages are shared by all processes that map the file, and cost nothing of their own.

#include "levin/base/export.h"

namespace levin::files {

/// Whether the address lies in a MemoryMap of this process that is there now.
LEVIN_API bool is_mapped(const void* address);

}  // namespace levin::files
