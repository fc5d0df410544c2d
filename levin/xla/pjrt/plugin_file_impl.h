#pragma once
// Files of plugins: what they drive.

#include <string>

namespace levin::xla::pjrt::detail {

/// "tpu", "cuda", "cpu" or "", as the file's name tells.
std::string plugin_kind(const std::string& path);

}  // namespace levin::xla::pjrt::detail
