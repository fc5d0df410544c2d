#pragma once
// Lists a folder without exceptions.
//
//   for (const std::filesystem::path& entry : entries_of("levin_logs")) { ... }

#include <filesystem>
#include <vector>

#include "levin/base/export.h"

namespace levin::files {

/// In the order of their names; none where it is no folder or cannot be read.
LEVIN_API std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Returns the path from the root on; unchanged if the process's own folder no longer exists.
LEVIN_API std::filesystem::path absolute_path(const std::filesystem::path& path);

/// TMPDIR, or /tmp where that names no folder.
LEVIN_API std::filesystem::path temporary_folder();

}  // namespace levin::files
