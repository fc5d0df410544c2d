#pragma once
// The values of a program's parameters and persistent buffers: the archive's own, or those of a file beside it.
// Stands between the archive and the tensors of an ExportedModule.
// Not for users.

#include <filesystem>

#include "levin/interchange/archive/program_archive.h"
#include "levin/interchange/program/program.h"

namespace levin::interchange {

/// All of the program's parameters and persistent buffers by name, as its signature has them; tied names share
/// memory. file: what load_weights reads, or empty for the archive's. Throws Error "interchange.archive" where the
/// archive has no values for a name, has others too, or values of another type than the program says;
/// "interchange.weights" where the file does so; and what load_weights throws.
Tensors weights_of(const Program& program, const ProgramArchive& archive,
                   const std::filesystem::path& file);

}  // namespace levin::interchange
