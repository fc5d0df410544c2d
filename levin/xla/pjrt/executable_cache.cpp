#include "levin/xla/pjrt/executable_cache.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/posix.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/trust.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace levin::xla::pjrt {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSuffix = ".pjrt";
constexpr std::string_view kMagic = "levinXLA1";

std::string digest_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string variable_or_empty(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path chosen_folder() {
  const std::string own = variable_or_empty("LEVIN_XLA_CACHE");
  if (own == "off") return {};
  if (!own.empty()) return own;
  const std::string cache = variable_or_empty("XDG_CACHE_HOME");
  if (!cache.empty()) return fs::path(cache) / "levin/xla";
  const std::string home = variable_or_empty("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache/levin/xla";
}

// A program that XLA compiles for a CPU runs only on processors with the same features.
std::string processor_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

/// Returns everything that decides the compiler's output. Each part has its size, so that it cannot
/// run into the next.
std::string key_of(const Client& client, std::string_view text, const CompileOptions& options) {
  std::string all;
  const auto add = [&all](std::string_view part) {
    all += fmt::format("{}:", part.size());
    all += part;
  };
  add(client.plugin().identity());
  add(client.platform());
  add(client.platform_version());
  for (const Device& device : client.devices())
    add(fmt::format("{} {} {}", device.id, device.process, device.kind));
  if (client.platform() == "cpu") add(processor_features());
  add(variable_or_empty("XLA_FLAGS"));
  add(variable_or_empty("LIBTPU_INIT_ARGS"));
  add(fmt::format("{} {} {} {}", options.num_replicas, options.num_partitions,
                  options.use_spmd_partitioning, fmt::join(options.device_ids, ",")));
  add(text);
  return digest_of(all);
}

// An entry is kMagic, the digest of the executable as 32 characters, the executable.
constexpr size_t kHeader = kMagic.size() + 32;

std::string entry_of(std::string_view executable) {
  std::string entry(kMagic);
  entry += digest_of(executable);
  entry += executable;
  return entry;
}

/// The executable in an entry; none, and why, for one that is damaged.
std::optional<std::string_view> executable_in(std::string_view entry, std::string& why) {
  if (entry.size() < kHeader || !entry.starts_with(kMagic)) {
    why = fmt::format("its {} bytes are not a cache entry", entry.size());
    return std::nullopt;
  }
  const std::string_view executable = entry.substr(kHeader);
  if (digest_of(executable) == entry.substr(kMagic.size(), 32)) return executable;
  why = "its bytes differ from the written ones";
  return std::nullopt;
}

void warn_of_entry(const fs::path& path, std::string_view why) {
  log::warn("xla cache: {} is dropped and compiled again: {}", path.string(), why);
  std::error_code ignored;
  fs::remove(path, ignored);
}

/// Returns the bytes of an entry, read in full: a mapped one might change while it runs. Nothing if
/// there is none; `why` says why one cannot be used.
std::optional<std::string> bytes_of(const fs::path& path, std::string& why) {
  const auto file = posix::open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file && errno == ELOOP) why = "it is a link";
  struct stat status = {};
  if (!file || ::fstat(file.number(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode)) return std::nullopt;
  why = files::detail::distrust(file);
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  if (posix::read_some(file, std::as_writable_bytes(std::span(bytes))) !=
      static_cast<int64_t>(bytes.size())) {
    why = "it cannot be read";
  }
  return bytes;
}

std::optional<Executable> read_entry(const fs::path& path, const Client& client) {
  std::string why;
  const auto entry = bytes_of(path, why);
  const auto executable = entry && why.empty() ? executable_in(*entry, why) : std::nullopt;
  if (!executable) {
    if (!why.empty()) warn_of_entry(path, why);
    return std::nullopt;
  }
  try {
    Executable loaded = client.load(*executable);
    std::error_code error;
    fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // used now
    return loaded;
  } catch (const Error& failure) {
    warn_of_entry(path, failure.text());
    return std::nullopt;
  }
}

// Entries of other users, in a folder that was open to them, are recognized by their owner.
void check_folder(const fs::path& folder) {
  const auto opened = posix::open_file(folder, O_RDONLY | O_DIRECTORY);
  struct stat status = {};
  if (!opened || ::fstat(opened.number(), &status) != 0) return;
  if (status.st_uid == ::geteuid() && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    ::fchmod(opened.number(), S_IRWXU);
    ::fstat(opened.number(), &status);
  }
  const std::string doubt = files::detail::distrust(opened);
  LEVIN_CHECK(doubt.empty() && (status.st_mode & S_ISVTX) == 0, "xla.cache",
              "compiled programs are not loaded from {}: {}; set LEVIN_XLA_CACHE to a folder of "
              "your own, or to off",
              folder.string(), doubt.empty() ? "everybody can write to it" : doubt);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (::mkdir(folder.c_str(), S_IRWXU) == 0 || errno == EEXIST) return;
  LEVIN_FAIL("files.write", "cannot make the folder {}: {}", folder.string(), posix::reason(errno));
}

struct Entry {
  fs::path path;
  int64_t size;
  fs::file_time_type used;
};

/// Removes the entries that were not used for the longest time, until they fit. Another process may
/// remove the same ones.
void shrink(const fs::path& folder, int64_t limit_bytes) {
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (const fs::path& file : files::entries_of(folder)) {
    if (file.extension() != kSuffix) continue;
    std::error_code gone, also_gone;
    const auto size = static_cast<int64_t>(fs::file_size(file, gone));
    const auto used = fs::last_write_time(file, also_gone);
    if (gone || also_gone) continue;
    entries.push_back({file, size, used});
    total += size;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (size_t i = 0; total > limit_bytes && i < entries.size(); ++i) {
    total -= entries[i].size;
    fs::remove(entries[i].path, error);
  }
}

/// Throws Error "files.write".
void write_entry(const fs::path& path, const Executable& executable, int64_t limit_bytes) {
  const std::string entry = entry_of(executable.serialize());
  if (static_cast<int64_t>(entry.size()) > limit_bytes) return;
  make_folder(path.parent_path());
  shrink(path.parent_path(), limit_bytes - static_cast<int64_t>(entry.size()));
  files::write_file_atomically(path, entry);
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);  // whatever the umask is
}

}  // namespace

ExecutableCache::ExecutableCache(const CacheOptions& options)
    : folder_(options.folder.empty() ? chosen_folder() : options.folder),
      limit_bytes_(options.limit_bytes) {
  if (folder_.empty()) return;
  check_folder(folder_);
  try {
    files::remove_stale_staging(folder_);
  } catch (const Error&) {
    // An error of cleaning is reported when it also prevents the writing of an entry.
  }
}

Executable ExecutableCache::compile(const Client& client, std::string_view text,
                                    const CompileOptions& options,
                                    const std::function<void()>& on_miss) {
  const fs::path path = folder_.empty()
                            ? fs::path()
                            : folder_ / (key_of(client, text, options) + std::string(kSuffix));
  if (!path.empty()) {
    if (auto loaded = read_entry(path, client)) {
      ++hits_;
      return *loaded;
    }
  }
  ++misses_;
  if (on_miss) on_miss();
  const auto start = std::chrono::steady_clock::now();
  Executable compiled = client.compile(text, options);
  compile_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (path.empty() || !can_write_) return compiled;
  try {
    write_entry(path, compiled, limit_bytes_);
  } catch (const Error& error) {
    can_write_ = false;
    log::warn(
        "xla cache: cannot store compiled programs: {}; set LEVIN_XLA_CACHE to a folder with free "
        "space, or to off",
        error.text());
  }
  return compiled;
}

}  // namespace levin::xla::pjrt
