#pragma once
// Names of files and folders in the making, and whether their maker still lives.
// Not for users.
//
//   .tmp-NAME@HOST-SPACE-PID-START-RANDOM      what will become NAME
//   .old-NAME@HOST-SPACE-PID-START-RANDOM      the NAME that is being replaced in two steps
//
// Its maker holds a lock (flock) on what it stages, which ends with the process. That is seen from
// other containers too, where the pid means nothing: SPACE is the pid namespace that it counts in.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "levin/base/posix.h"

namespace levin::files::detail {

constexpr std::string_view kNew = ".tmp-";
constexpr std::string_view kOld = ".old-";

/// A new name beside final_path; kind is kNew or kOld.
std::filesystem::path staging_path(const std::filesystem::path& final_path, std::string_view kind);

struct Staged {
  std::filesystem::path path;
  posix::Descriptor lock;  ///< none where the file system has no locks
};

/// Makes an empty folder or file beside final_path and locks it. Throws Error "files.write".
Staged stage_folder(const std::filesystem::path& final_path);
Staged stage_file(const std::filesystem::path& final_path);

/// Locks the file or folder and returns its descriptor; empty if it cannot be locked now.
posix::Descriptor lock_now(const std::filesystem::path& path);

struct Leftover {
  std::string_view kind;   ///< kNew or kOld
  std::string name;        ///< name of the final path
  posix::Descriptor lock;  ///< held while it is removed, where it has one
};

/// Parses a path; nullopt unless it is a staging name of this machine whose process has died.
std::optional<Leftover> leftover(const std::filesystem::path& path);

}  // namespace levin::files::detail
