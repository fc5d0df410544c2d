#pragma once
// The folder that a command's result goes to: new, empty, or one that levin has written before.

#include <filesystem>
#include <string>

namespace levin::tools {

/// Throws Error `id` where something stands at the path that no such command has written, unless
/// overwrite; always where it is no folder.
void check_output_folder(const std::filesystem::path& folder, bool overwrite,
                         const std::string& id);

/// Makes the folder, and says in its levin.json by which command it is: one that is written again is
/// known by that. Throws Error "files.write".
void mark_output_folder(const std::filesystem::path& folder, const std::string& command);

}  // namespace levin::tools
