#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/log.h"
#include "levin/base/reading/regular_file.h"
#include "levin/base/text/utf8.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/writing/output.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersion = "version_";
constexpr const char* kRunId = "run_id";
constexpr size_t kLongestId = 64;
constexpr std::string_view kHparams = "# hyperparameters of a run of levin\n";

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

std::string new_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// Returns "" if there is none.
std::string read_id(const fs::path& folder) {
  std::string why, id(kLongestId, '\0');
  const auto opened = posix::open_regular(folder / kRunId, why);
  if (!opened) return "";
  const int64_t read = posix::read_some(opened->file, std::as_writable_bytes(std::span(id)));
  id.resize(static_cast<size_t>(std::max<int64_t>(read, 0)));
  id.resize(std::min(id.find_first_of(" \n"), id.size()));
  return id;
}

/// Against other processes, for as long as this one keeps the file open. False where another one has it.
bool lock_folder(const fs::path& folder, posix::Descriptor& file) {
  file = files::open_own(folder / kRunId, O_RDWR);
  if (!file) return true;
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const bool is_taken =
      ::fcntl(file.number(), F_SETLK, &whole) != 0 && (errno == EACCES || errno == EAGAIN);
  if (is_taken) static_cast<void>(file.close());
  return !is_taken;
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

void LoggerOptions::fields(FieldVisitor& field) {
  field("save_dir", save_dir, "folder that holds all runs");
  field("name", name, "subfolder of save_dir for the experiment; empty: none");
  field("version", version, "number of the run; none: the highest so far plus one");
  field("prefix", prefix, "put before each name, joined by '-'");
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

TextKind kind_of_text(const std::string& text) {
  if (reads_as<bool>(text)) return TextKind::kBool;
  return reads_as<int64_t>(text) || reads_as<double>(text) ? TextKind::kNumber : TextKind::kText;
}

RunDirectory::RunDirectory(LoggerOptions options) : options_(std::move(options)) {
  LEVIN_CHECK(options_.version.value_or(0) >= 0, "observe.logger.dir",
              "got version = {}, wanted at least 0, or none for the next free number",
              *options_.version);
}

std::string RunDirectory::experiment() const {
  return options_.name.empty() ? options_.save_dir
                               : (fs::path(options_.save_dir) / options_.name).string();
}

const std::string& RunDirectory::path() const {
  if (!path_.empty()) return path_;
  const int64_t version = options_.version ? *options_.version : claim_version(experiment());
  const fs::path path = redirected(experiment()) / fmt::format("{}{}", kVersion, version);
  make(path);
  take(path.string());
  return path_;
}

/// Logs without a run_id are kept all the same; a later run has a folder of its own then.
void RunDirectory::take(const std::string& folder) const {
  path_ = folder;
  id_ = read_id(folder);
  try {
    if (id_.empty())
      files::write_file_atomically(fs::path(folder) / kRunId, (id_ = new_id()) + "\n");
  } catch (const Error&) {
    id_.clear();
  }
  if (!lock_) static_cast<void>(lock_folder(folder, lock_));
}

State RunDirectory::state_dict() const {
  State state;
  state.set("folder", fs::path(path()).filename().string());
  return std::move(state.set("run_id", id_));
}

bool RunDirectory::resume(const State& state) {
  const std::string& id = state.text("run_id");
  if (id.empty()) return false;
  if (path_.empty() && options_.version) static_cast<void>(path());
  if (!path_.empty()) return id_ == id;
  // A checkpoint's state is untrusted: accept a name only, no path, and a folder that knows the run.
  const std::string& name = state.text("folder");
  const bool is_name = name.starts_with(kVersion) && name.find('/') == std::string::npos;
  const fs::path folder = redirected(experiment()) / name;
  if (!is_name || read_id(folder) != id) return false;
  if (!lock_folder(folder, lock_)) {
    log::warn("{} is written by another process, so this run's logs go to a new folder",
              folder.string());
    return false;
  }
  path_ = folder.string();  // and the file is not opened again, which would end the lock
  id_ = id;
  return true;
}

std::vector<std::string> RunDirectory::known_dirs() const {
  if (!path_.empty()) return {path_};
  const fs::path root = redirected(experiment());
  if (options_.version) return {(root / fmt::format("{}{}", kVersion, *options_.version)).string()};
  std::vector<std::string> all;
  std::error_code error;
  if (!fs::is_directory(root, error)) return all;
  for (const fs::path& entry : files::entries_of(root)) {
    if (entry.filename().string().starts_with(kVersion)) all.push_back(entry.string());
  }
  return all;
}

void RunDirectory::write_hyperparams(const std::map<std::string, std::string>& hyperparams) const {
  const fs::path file = fs::path(path()) / "hparams.toml";
  std::string text(kHparams);
  if (!id_.empty()) text += fmt::format("# {} = {}\n", kRunId, id_);
  for (const auto& [key, value] : hyperparams) {
    const bool bare = kind_of_text(value) != TextKind::kText;
    text += fmt::format("{} = {}\n", toml_key(key), bare ? value : detail::toml_string(value));
  }
  files::check_own(file, kHparams);
  files::write_file_atomically(file, text);
}

void RunDirectory::write_beside(std::string_view folder, std::string_view name, int64_t step,
                                std::string_view extension, std::string_view bytes) const {
  const fs::path in = fs::path(path()) / folder;
  make(in);
  files::write_file_atomically(in / fmt::format("{}_{}.{}", file_name_of(name), step, extension),
                               bytes);
}

void RunDirectory::attempt(const std::function<void()>& write) const {
  try {
    write();
  } catch (const std::exception& error) {
    if (std::exchange(warned_, true)) return;
    log::warn("{}; the logger drops values that it cannot write, and training continues",
              error.what());
  }
}

}  // namespace detail
}  // namespace levin
