#include "levin/files/atomic.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/files/file_writer.h"
#include "levin/files/staging_name_impl.h"

namespace levin::files {
namespace fs = std::filesystem;
namespace {

void check(std::error_code error, std::string_view what, const fs::path& path) {
  LEVIN_CHECK(!error, "files.write", "cannot {} {}: {}", what, path.string(),
              posix::reason(error.value()));
}

/// The place without trailing slash, whatever folder the process changes to.
fs::path whole(const fs::path& path) {
  std::error_code error;
  const fs::path normal = fs::absolute(path, error).lexically_normal();
  check(error, "find the path", path);
  return normal.has_filename() ? normal : normal.parent_path();
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(error, "rename " + from.filename().string() + " to", to);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

/// Everything in it and itself: a rename must not reach the disk before what it names.
void sync_tree(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const fs::file_status status = at->symlink_status(error);
    if (fs::is_regular_file(status) || fs::is_directory(status)) posix::sync_path(at->path());
  }
  check(error, "read", folder);
  posix::sync_path(folder);
}

/// Replaces the folder where two folders cannot be exchanged. After a death between the renames the
/// old folder has a kOld name, from which remove_stale_staging puts it back. A folder that is to be
/// removed never has that name.
void replace_in_two_steps(const fs::path& staged, const fs::path& final_path) {
  const posix::Descriptor lock = detail::lock_now(final_path);
  const fs::path old = detail::staging_path(final_path, detail::kOld);
  move_to(final_path, old);
  try {
    move_to(staged, final_path);
  } catch (const Error&) {
    move_to(old, final_path);
    throw;
  }
  move_to(old, staged);
}

/// Renames the folder to a place where nothing, or an empty folder, stood a moment ago; somebody
/// may have taken it since.
void put_in_empty_place(const fs::path& staged, const fs::path& final_path) {
  if (::rename(staged.c_str(), final_path.c_str()) == 0) return;
  const int error = errno;
  const bool is_taken = error == ENOTEMPTY || error == EEXIST || error == ENOTDIR;
  LEVIN_CHECK(!is_taken, "files.replace",
              "cannot make {}: another process has made it in the meantime; name another folder",
              final_path.string());
  LEVIN_FAIL("files.write", "cannot rename {} to {}: {}", staged.filename().string(),
             final_path.string(), posix::reason(error));
}

/// Puts the staged folder in its place; what stood there, if anything did, has its name then.
void put_in_place(const fs::path& staged, const fs::path& final_path) {
  // Another job may put its own there, or take it away, between the two calls: each time it has done something.
  constexpr int kTries = 1000;
  for (int i = 0;; ++i) {
    if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) == 0) {
      return;
    }
    const int error = errno;
    const bool no_exchange = error == EINVAL || error == ENOSYS || error == ENOTSUP;
    LEVIN_CHECK(no_exchange || error == ENOENT, "files.write", "cannot replace {}: {}",
                final_path.string(), posix::reason(error));
    if (no_exchange && is_there(final_path)) return replace_in_two_steps(staged, final_path);
    if (::rename(staged.c_str(), final_path.c_str()) == 0) return;
    const bool is_taken = errno == ENOTEMPTY || errno == EEXIST;
    LEVIN_CHECK(is_taken && i < kTries, "files.write", "cannot rename {} to {}: {}",
                staged.filename().string(), final_path.string(), posix::reason(errno));
  }
}

}  // namespace

StagedDirectory::StagedDirectory(const fs::path& final_path, MayReplace may_replace)
    : final_path_(whole(final_path)), may_replace_(std::move(may_replace)) {
  check_replaceable();
  std::error_code error;
  fs::create_directories(final_path_.parent_path(), error);
  check(error, "make the folder", final_path_.parent_path());
  detail::Staged staged = detail::stage_folder(final_path_);
  path_ = std::move(staged.path);
  lock_ = std::make_unique<posix::Descriptor>(std::move(staged.lock));
}

StagedDirectory::~StagedDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(path_, ignored);
}

void StagedDirectory::check_replaceable() const {
  const std::string name = final_path_.string();
  std::error_code error;
  const fs::file_status there = fs::symlink_status(final_path_, error);
  if (!fs::exists(there)) return;
  LEVIN_CHECK(!fs::is_symlink(there), "files.replace",
              "cannot replace {}: it is a link; name the folder that the link points to, or move "
              "the link away",
              name);
  LEVIN_CHECK(fs::is_directory(there), "files.write",
              "cannot replace {}: it is a file, wanted a folder; move the file away", name);
  LEVIN_CHECK(!fs::equivalent(final_path_, ".", error), "files.replace",
              "cannot replace {}: it is the working directory of this program; name another folder",
              name);
  error.clear();
  const fs::directory_iterator first(final_path_, error);
  check(error, "list the folder", final_path_);
  if (first == fs::directory_iterator() || (may_replace_ && may_replace_(final_path_))) return;
  LEVIN_FAIL("files.replace",
             "cannot replace {}: it holds '{}', which levin has not saved there; name an empty or "
             "new folder, or move this one away",
             name, first->path().filename().string());
}

void StagedDirectory::commit() {
  LEVIN_CHECK(!committed_, "files.write", "{} is already committed; stage a new one",
              final_path_.string());
  sync_tree(path_);
  check_replaceable();
  if (may_replace_) {
    put_in_place(path_, final_path_);
  } else {
    put_in_empty_place(path_, final_path_);
  }
  committed_ = true;
  posix::sync_path(final_path_.parent_path());
  std::error_code error;
  fs::remove_all(path_, error);
  check(error, "remove", path_);
}

StagedFile::StagedFile(const fs::path& final_path) : final_path_(whole(final_path)) {
  detail::Staged staged = detail::stage_file(final_path_);
  path_ = std::move(staged.path);
  lock_ = std::make_unique<posix::Descriptor>(std::move(staged.lock));
}

StagedFile::~StagedFile() {
  std::error_code ignored;  // a committed file no longer has this name
  fs::remove(path_, ignored);
}

void StagedFile::commit() {
  move_to(path_, final_path_);
  posix::sync_path(final_path_.parent_path());
}

void remove_folder(const fs::path& folder) {
  const fs::path place = whole(folder);
  const fs::path gone = detail::staging_path(place, detail::kNew);
  move_to(place, gone);
  posix::sync_path(place.parent_path());
  std::error_code error;
  fs::remove_all(gone, error);
  check(error, "remove", gone);
}

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path place = whole(link);
  std::error_code error;
  const fs::file_status there = fs::symlink_status(place, error);
  LEVIN_CHECK(!fs::exists(there) || fs::is_symlink(there), "files.write",
              "cannot link {}: a file or folder exists at that path; move it away", place.string());
  // Real paths: where a folder on the way is a link itself, ".." leads elsewhere than it reads.
  const fs::path goal = whole(target);
  LEVIN_CHECK(fs::exists(goal, error), "files.write", "cannot link {} to {}: {}", place.string(),
              goal.string(), posix::reason(ENOENT));
  const fs::path goal_folder = fs::canonical(goal.parent_path(), error);
  const fs::path link_folder = fs::canonical(place.parent_path(), error);
  check(error, "find the folder of", place);
  const fs::path made = detail::staging_path(place, detail::kNew);
  fs::create_symlink((goal_folder / goal.filename()).lexically_relative(link_folder), made, error);
  check(error, "make the link", made);
  try {
    move_to(made, place);
  } catch (const Error&) {
    fs::remove(made, error);
    throw;
  }
  posix::sync_path(place.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  StagedFile staged(path);
  FileWriter file(staged.path());
  file.write(text);
  file.close();
  staged.commit();
}

int64_t remove_stale_staging(const fs::path& parent) {
  if (!is_there(parent)) return 0;
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  check(error, "list the folder", parent);
  int64_t count = 0;
  for (const fs::path& entry : entries) {
    const auto left = detail::leftover(entry);
    if (!left) continue;
    if (left->kind == detail::kOld && !is_there(parent / left->name)) {
      move_to(entry, parent / left->name);
    } else {
      fs::remove_all(entry, error);
      check(error, "remove", entry);
    }
    ++count;
  }
  if (count > 0) posix::sync_path(parent);
  return count;
}

}  // namespace levin::files
