#pragma once
// The values of a program's parameters and persistent buffers: the archive's own, or those of a file beside it.
// Stands between the archive and the tensors of an ExportedModule.
// Not for users.

#include <filesystem>

#include "levin/interchange/archive/program_archive.h"
#include "levin/interchange/program/program.h"

namespace levin::interchange {

/// Returns all of the program's parameters and persistent buffers by name, as in its signature;
/// tied names share memory. file: a file for load_weights, or empty for the archive's weights.
/// Throws Error "interchange.archive" if the archive lacks values for a name, has others too, or
/// values of another type than the program's; "interchange.weights" if the file does so; and the
/// errors of load_weights.
Tensors weights_of(const Program& program, const ProgramArchive& archive,
                   const std::filesystem::path& file);

}  // namespace levin::interchange
