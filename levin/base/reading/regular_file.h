#pragma once
// Files that levin reads are files: a pipe without a writer would keep the reader waiting for ever, and
// a device need not end.
// Not for users.
//
//   std::string why;
//   const auto text = posix::read_text("run.toml", why);
//   LEVIN_CHECK(text, "base.options.config", "cannot read {}: {}", "run.toml", why);

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::posix {

/// Open for reading, with its size in bytes.
struct RegularFile {
  Descriptor file;
  int64_t size = 0;
};

/// Returns nothing, and why, for a path that names no regular file. Never waits.
LEVIN_API std::optional<RegularFile> open_regular(const std::filesystem::path& path,
                                                  std::string& why);

/// Returns whether a path names a stream that this process has open: /dev/stdin, /dev/fd/3 and so what a shell
/// makes of <(...).
LEVIN_API bool is_open_stream(const std::filesystem::path& path);

/// The text of a small file. Streams that this process has open are read to their end too, where they
/// are named as such. None, and why, for any other path that names no regular file, and for a text of
/// more than 64 MiB.
LEVIN_API std::optional<std::string> read_text(const std::filesystem::path& path, std::string& why);

}  // namespace levin::posix
