#pragma once
// Checks who may change a file before levin runs it as code: only this user and root may. Not for
// users.

#include <filesystem>
#include <string>

#include "levin/base/posix.h"

namespace levin::files::detail {

/// Why an open file or folder is not to be trusted: another user than this one or root owns it or
/// may write to it. "" when all is well. A group of the owner alone (of the same number, as Linux
/// gives each user one) counts as the owner, and a folder where each may remove his own files alone
/// (/tmp) as nobody's.
LEVIN_API std::string distrust(const posix::Descriptor& file);

/// Checks a file and its folder; follows links. Returns "" also if the file does not exist.
LEVIN_API std::string distrust(const std::filesystem::path& path);

}  // namespace levin::files::detail
