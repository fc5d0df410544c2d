#pragma once
// Files that levin opens for writing: new ones, and those that it has written before. Files and
// links that somebody else has put there stay as they are. Files that are replaced in full are
// staged (atomic.h).
//
//   std::filesystem::path log = "logs/stdout.log";
//   const posix::Descriptor file = create_beside(log);  // "logs/stdout.2.log" where that one is taken

#include <filesystem>
#include <string_view>

#include "levin/base/export.h"
#include "levin/base/posix.h"

namespace levin::files {

/// Opens a new file of that name. If that exists it takes the first free one of "name.2.log",
/// "name.3.log" and so on, and sets path to it. Its folder is made. Empty with errno set when it
/// fails.
LEVIN_API posix::Descriptor create_beside(std::filesystem::path& path);

/// Opens a regular file that this process or one of its job has made, with open(2)'s flags. A
/// missing file is made if O_CREAT is among them, for this user alone with private_to_user. Never
/// follows a link, and does not wait for the reader of a pipe. Empty with errno set when it fails.
LEVIN_API posix::Descriptor open_own(const std::filesystem::path& path, int flags,
                                     bool private_to_user = false);

/// Makes a file without a name in a folder, for reading and writing: it ends with its descriptor. Empty with errno set
/// when it fails.
LEVIN_API posix::Descriptor create_without_name(const std::filesystem::path& folder);

/// The same where the file system lacks such files (O_TMPFILE): makes a file of a name and unlinks it at once.
LEVIN_API posix::Descriptor create_unlinked(const std::filesystem::path& folder);

/// Checks a file that a user names as a command's output. Throws Error "files.replace" unless
/// nothing exists there, or a regular file that is empty or begins with `beginning`, as the
/// command's earlier output does.
LEVIN_API void check_own(const std::filesystem::path& path, std::string_view beginning);

/// Adds to the end of a file, which is made where it is missing. Throws what check_own throws, and Error
/// "files.write".
LEVIN_API void append_text(const std::filesystem::path& path, std::string_view text,
                           std::string_view beginning);

}  // namespace levin::files
