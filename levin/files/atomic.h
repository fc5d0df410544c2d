#pragma once
// Files and folders that appear whole or not at all, whenever the process or the machine dies.
// The last step of every save: a checkpoint is staged, committed, and only then linked as `last`.
//
//   StagedDirectory staged("runs/epoch=3");            // runs/.tmp-epoch=3@host-pid-...
//   write_safetensors(staged.path() / "model.safetensors", tensors);
//   staged.commit();                                   // runs/epoch=3 is there, on the disk
//   replace_link("runs/last", "runs/epoch=3");

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "levin/base/export.h"

namespace levin::posix {
class Descriptor;
}  // namespace levin::posix

namespace levin::files {

/// Returns whether an existing folder may be replaced, and be lost with all its contents.
using MayReplace = std::function<bool(const std::filesystem::path& folder)>;

/// A folder that is filled beside its final place. Every failure throws Error "files.write", or
/// "files.replace" for what may not be replaced, and leaves what stood at the final place as it
/// was.
class LEVIN_API StagedDirectory {
 public:
  /// Makes the temporary folder, and missing folders above it. At the final place it replaces an
  /// empty folder, and a folder that may_replace allows; never a file, a link, another folder or
  /// the one that the process works in.
  explicit StagedDirectory(const std::filesystem::path& final_path, MayReplace may_replace = {});
  /// Removes the temporary folder when it was not committed.
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  /// Returns the folder to write to until commit().
  const std::filesystem::path& path() const { return path_; }
  /// Syncs all that was written and renames it to its final place; what stood there is replaced in
  /// one step and removed. Where the file system cannot exchange two folders (some network file
  /// systems) it takes two, and remove_stale_staging() mends a death between them.
  void commit();

 private:
  void check_replaceable() const;

  std::filesystem::path final_path_;
  MayReplace may_replace_;
  std::filesystem::path path_;
  std::unique_ptr<posix::Descriptor> lock_;  // says that this process lives
  bool committed_ = false;
};

/// A file that is written beside its final place; the old file stays complete until commit(). Every
/// failure throws Error "files.write".
class LEVIN_API StagedFile {
 public:
  explicit StagedFile(const std::filesystem::path& final_path);
  /// Removes the temporary file when it was not committed.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Returns the file to write to until commit(); it is empty at first.
  const std::filesystem::path& path() const { return path_; }
  /// Renames the file to its final place. The writer syncs it before, as FileWriter::close() does.
  void commit();

 private:
  std::filesystem::path final_path_;
  std::filesystem::path path_;
  std::unique_ptr<posix::Descriptor> lock_;
};

/// Removes a folder as one: a death leaves it whole, or what remove_stale_staging() takes away.
/// Throws Error "files.write".
LEVIN_API void remove_folder(const std::filesystem::path& folder);

/// Makes link a symbolic link to target, or points the one there is to it in one step: a reader
/// finds the old target or the new one. Both paths as seen from here; the link stores target
/// relative to itself, so that the folder can be moved. Throws Error "files.write", also when
/// target is missing or link is a file or folder.
LEVIN_API void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

/// The file holds the old text or the new one, never a part. Throws Error "files.write".
LEVIN_API void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Removes what processes of this machine that died left in that folder, and puts back a folder
/// whose replacement they had begun in two steps. Returns how many it removed or put back; what
/// another machine stages stays, and what a process stages that lives, in another container too.
/// Throws Error "files.write".
LEVIN_API int64_t remove_stale_staging(const std::filesystem::path& parent);

}  // namespace levin::files
