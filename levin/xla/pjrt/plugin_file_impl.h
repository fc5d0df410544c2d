#pragma once
// Files of plugins: what they drive, and where this build's own lie.

#include <string>
#include <string_view>

namespace levin::xla::pjrt::detail {

/// "tpu", "cuda", "cpu" or "", as the file's name tells.
std::string plugin_kind(const std::string& path);

/// Where the plugins lie that were fetched for this build; "" where none were. Written by CMake: as
/// a macro it would stand in the command line of every source.
std::string_view fetched_folder();

}  // namespace levin::xla::pjrt::detail
