#include "levin/files/trust.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace levin::files::detail {
namespace {

std::string distrust_of(const struct stat& status, const std::string& what) {
  if (status.st_uid != ::geteuid() && status.st_uid != 0) {
    return fmt::format("{} belongs to the user {}", what, status.st_uid);
  }
  const bool own_group = status.st_gid == status.st_uid;
  const bool others =
      (status.st_mode & S_IWOTH) != 0 || ((status.st_mode & S_IWGRP) != 0 && !own_group);
  const bool keeps_apart = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if (others && !keeps_apart) return what + " may be written by other users";
  return "";
}

}  // namespace

std::string distrust(const posix::Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.number(), &status) != 0) return "";
  return distrust_of(status, S_ISDIR(status.st_mode) ? "the folder" : "the file");
}

std::string distrust(const std::filesystem::path& path) {
  std::error_code unknown;
  const auto real = std::filesystem::canonical(path, unknown);
  struct stat status = {};
  if (unknown || ::stat(real.c_str(), &status) != 0) return "";
  std::string why = distrust_of(status, "the file");
  if (why.empty() && ::stat(real.parent_path().c_str(), &status) == 0) {
    why = distrust_of(status, "its folder");
  }
  return why;
}

}  // namespace levin::files::detail
