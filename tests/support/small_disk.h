#pragma once
// A disk of a few pages that only this process sees, to be filled up.

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace levin::test {

/// A mount namespace of this process's own; by way of a user namespace where it is not root, in
/// which it stays the user that it is, for others of its kind too.
inline bool have_own_mounts() {
  if (::unshare(CLONE_NEWNS) == 0) return true;
  const std::string user = std::to_string(::getuid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return static_cast<bool>(std::ofstream("/proc/self/uid_map")
                           << user << " " << user << " 1" << std::flush);
}

/// Mounts a tmpfs on that folder. False where that is not permitted. For child processes only: the
/// disk lasts as long as they do.
inline bool mount_small_disk(const std::string& folder, size_t bytes) {
  if (!have_own_mounts()) return false;
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  const std::string size = "size=" + std::to_string(bytes);
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace levin::test
