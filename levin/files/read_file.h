#pragma once
// read_file: a whole file of text, or the reason why not.
// How every small file is read that is parsed afterwards.
//
//   const std::string text = read_file("manifest.json");

#include <filesystem>
#include <string>

#include "levin/base/export.h"

namespace levin::files {

/// Throws Error "files.read" with path and reason: missing, a folder, a pipe or device, no
/// permission, a disk that fails.
LEVIN_API std::string read_file(const std::filesystem::path& path);

}  // namespace levin::files
