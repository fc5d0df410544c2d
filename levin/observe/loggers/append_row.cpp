#include "levin/observe/loggers/append_row.h"

#include <unistd.h>

#include <cerrno>
#include <span>

#include "levin/base/check.h"

namespace levin::detail {

void append_row(const posix::Descriptor& file, const std::string& path, const std::string& row,
                int64_t& size) {
  const size_t done = posix::write_all(file, std::as_bytes(std::span(row)));
  if (done < row.size()) {
    const int error = errno;
    // Half a row would spoil the next one.
    if (done > 0 && ::ftruncate(file.number(), size) != 0) size += static_cast<int64_t>(done);
    errno = error;
    fail_to_write(path);
  }
  size += static_cast<int64_t>(done);
}

void fail_to_write(const std::string& path) {
  LEVIN_FAIL("observe.logger.write", "cannot write {}: {}", path, posix::reason(errno));
}

}  // namespace levin::detail
