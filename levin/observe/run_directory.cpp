#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/log.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersion = "version_";

void fail_dir(const fs::path& path, const std::error_code& error) {
  LEVIN_FAIL("observe.logger.dir", "cannot make the folder {}: {}; choose another save_dir",
             path.string(), error.message());
}

void make(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_dir(path, error);
}

int64_t next_version(const fs::path& dir) {
  int64_t next = 0;
  for (const fs::path& entry : files::entries_of(dir)) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(kVersion)) continue;
    try {
      int64_t version = -1;
      from_text(std::string_view(name).substr(kVersion.size()), version);
      next = std::max(next, version + 1);
    } catch (const Error&) {
      continue;  // version_old and the like are no versions
    }
  }
  return next;
}

/// In the folder that LEVIN_LOGS_TO names, where it names one: of a run whose logs nobody wants.
fs::path redirected(const fs::path& dir) {
  const char* to = std::getenv("LEVIN_LOGS_TO");
  return to == nullptr
             ? dir
             : fs::path(to) / files::absolute_path(dir).lexically_normal().relative_path();
}

template <class T>
bool reads_as(std::string_view text) {
  try {
    T value{};
    from_text(text, value);
    return to_text(value) == text;
  } catch (const Error&) {
    return false;
  }
}

std::string toml_key(const std::string& name) {
  const bool bare = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return (c < 128 && std::isalnum(c) != 0) || c == '_' || c == '-';
  });
  return bare ? name : detail::toml_string(name);
}

}  // namespace

Logger::~Logger() = default;

void LoggerOptions::fields(FieldVisitor& field) {
  field("save_dir", save_dir, "folder of all runs");
  field("name", name, "folder of the experiment in save_dir; empty: none");
  field("version", version, "number of the run; none: one more than the highest there is");
}

int64_t claim_version(const std::string& dir) {
  const fs::path root = redirected(dir);
  make(root);
  for (int64_t version = next_version(root);; ++version) {
    const fs::path path = root / fmt::format("{}{}", kVersion, version);
    if (::mkdir(path.c_str(), 0777) == 0) return version;
    if (errno != EEXIST) fail_dir(path, {errno, std::generic_category()});
  }
}

namespace detail {

const std::string& RunDirectory::path() const {
  if (!path_.empty()) return path_;
  const fs::path experiment = options_.name.empty() ? fs::path(options_.save_dir)
                                                    : fs::path(options_.save_dir) / options_.name;
  const int64_t version = options_.version ? *options_.version : claim_version(experiment.string());
  const fs::path path = redirected(experiment) / fmt::format("{}{}", kVersion, version);
  make(path);
  path_ = path.string();
  return path_;
}

void RunDirectory::write_hyperparams(const std::map<std::string, std::string>& hyperparams) const {
  std::string text;
  for (const auto& [key, value] : hyperparams) {
    const bool bare = reads_as<bool>(value) || reads_as<int64_t>(value) || reads_as<double>(value);
    text += fmt::format("{} = {}\n", toml_key(key), bare ? value : detail::toml_string(value));
  }
  files::write_file_atomically(fs::path(path()) / "hparams.toml", text);
}

void RunDirectory::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const std::exception& error) {
    if (std::exchange(warned_, true)) return;
    log::warn("{}; the logger drops what it cannot write and training goes on", error.what());
  }
}

}  // namespace detail
}  // namespace levin
