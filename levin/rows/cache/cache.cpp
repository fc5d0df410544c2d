#include "levin/rows/cache/cache.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>

#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/posix.h"
#include "levin/files/atomic.h"
#include "levin/files/checksum.h"
#include "levin/files/writing/output.h"
#include "levin/rows/cache/making.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text::row {
namespace {

namespace fs = std::filesystem;

std::string variable_or_nothing(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Held by the process that makes a file; the system lets go of it when that process ends.
class MakingLock {
 public:
  explicit MakingLock(const fs::path& path) : file_(files::open_own(path, O_RDWR | O_CREAT)) {
    LEVIN_CHECK(file_, "files.write", "cannot make {}: {}", path.string(), posix::reason(errno));
    using std::chrono::steady_clock;
    const auto begin = steady_clock::now();
    auto told = std::chrono::minutes(1);
    std::chrono::milliseconds pause(1);
    while (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      // A file system without locks: each makes the file, the last one stays.
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      const auto waited = steady_clock::now() - begin;
      if (waited > told) {
        log::info("waiting for another process to tokenize {} ({} s so far)", path.stem().string(),
                  std::chrono::duration_cast<std::chrono::seconds>(waited).count());
        told += std::chrono::minutes(1);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(500));
    }
  }

 private:
  posix::Descriptor file_;
};

/// Returns the file if it is complete and has this fingerprint. Otherwise a warning names it.
std::shared_ptr<const TokenFile> opened(const fs::path& path, const std::string& fingerprint,
                                        const Plan& plan) {
  std::error_code error;
  if (!fs::exists(path, error)) return nullptr;
  try {
    auto file = std::make_shared<const TokenFile>(path, fingerprint);
    if (plan.max_length && file->about().report.longest > *plan.max_length) {
      throw TokenFile::Refusal("a sample is longer than max_length");
    }
    return file;
  } catch (const TokenFile::Refusal& refusal) {
    log::warn("rows: {} cannot be used and is written again: {}", path.string(), refusal.what());
    return nullptr;
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make the folder {}: {}; set cache_dir",
              folder.string(), posix::reason(error.value()));
}

}  // namespace

std::string fingerprint_of(const Wanted& wanted) {
  const RowsOptions& options = wanted.plan.options;
  nlohmann::json all = {kRowsVersion,
                        wanted.plan.task,
                        wanted.plan.columns.all(),
                        wanted.plan.negatives,
                        wanted.records.bytes().size(),
                        files::xxh3(wanted.records.bytes()),
                        wanted.records.path().extension().string(),
                        parts_of(wanted.tokenizer).fingerprint(),
                        options.label_names,
                        options.problem_type,
                        options.packing,
                        options.packing_strategy,
                        wanted.plan.max_length.value_or(-1),
                        options.truncation_mode,
                        wanted.plan.completion_only,
                        options.assistant_only_loss,
                        options.chat_template,
                        wanted.plan.eos};
  if (wanted.known) {
    all.push_back({static_cast<int>(wanted.known->kind), wanted.known->count, wanted.known->names});
  }
  const std::string text = all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto bytes = std::as_bytes(std::span(text));
  return fmt::format("{:016x}{:016x}", files::xxh3(bytes), files::xxh3(bytes, 1));
}

fs::path cache_folder(const RowsOptions& options) {
  if (!options.cache_dir.empty()) return options.cache_dir;
  if (const std::string own = variable_or_nothing("LEVIN_ROWS_CACHE"); !own.empty()) return own;
  if (const std::string cache = variable_or_nothing("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "levin/rows";
  }
  const std::string home = variable_or_nothing("HOME");
  LEVIN_CHECK(!home.empty(), "text.rows.options",
              "there is no folder for tokenized files: neither HOME nor XDG_CACHE_HOME is set; set "
              "cache_dir");
  return fs::path(home) / ".cache/levin/rows";
}

fs::path cache_path(const Wanted& wanted, const std::string& fingerprint) {
  const std::string stem = wanted.records.path().stem().string().substr(0, 64);
  return cache_folder(wanted.plan.options) / (stem + "-" + fingerprint + ".safetensors");
}

std::shared_ptr<const TokenFile> open_tokens(const Wanted& wanted, bool& from_cache) {
  const std::string fingerprint = fingerprint_of(wanted);
  const fs::path path = cache_path(wanted, fingerprint);
  make_folder(path.parent_path());
  fs::path lock_path = path;
  lock_path.replace_extension(".lock");
  const MakingLock lock(lock_path);
  files::remove_stale_staging(path.parent_path());
  from_cache = true;
  if (auto file = opened(path, fingerprint, wanted.plan)) return file;
  from_cache = false;
  make_tokens(wanted, path, fingerprint);
  auto made = opened(path, fingerprint, wanted.plan);
  LEVIN_CHECK(made != nullptr, "files.read", "{} was written but cannot be read back",
              path.string());
  return made;
}

}  // namespace levin::text::row
