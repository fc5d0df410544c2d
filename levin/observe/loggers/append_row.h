#pragma once
// append_row: adds a row to a file of a logger. Not for users.

#include <cstdint>
#include <string>

#include "levin/base/posix.h"

namespace levin::detail {

/// Appends a row to a file of that size, and counts its bytes. After a failure (disk full) the file
/// ends with the row before. Throws Error "observe.logger.write".
void append_row(const posix::Descriptor& file, const std::string& path, const std::string& row,
                int64_t& size);

/// Throws Error "observe.logger.write" with the reason in errno.
[[noreturn]] void fail_to_write(const std::string& path);

}  // namespace levin::detail
