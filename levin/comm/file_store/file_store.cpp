#include "levin/comm/file_store/file_store.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/files/writing/output.h"

namespace levin::comm {
namespace {

using FileClock = std::chrono::steady_clock;
constexpr std::string_view kFirstLine = "levin store 1\n";
constexpr uint32_t kGone = UINT32_MAX;  // as the length of a value
constexpr uint32_t kLongestKey = 1 << 16;
constexpr uint32_t kLongestValue = 1 << 30;
constexpr std::chrono::milliseconds kFirstPauses(1);
constexpr std::chrono::milliseconds kLaterPauses(10);
constexpr const char* kLeft = "left this file";  // no key of a run begins so: those have a prefix

/// The header before each key and its value.
struct Lengths {
  uint32_t key = 0;
  uint32_t value = 0;
};

std::string_view text_of(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace

/// The file, open and locked.
class FileStore::Locked {
 public:
  Locked(const std::filesystem::path& path, FileClock::time_point deadline) : path_(path) {
    // Others could serve the run what they like through a link or a file of theirs.
    // A launcher's file has no name but the kernel's link to it, which leads nobody else there.
    const bool is_kernels = path.native().starts_with("/proc/");
    file_ = is_kernels ? posix::open_file(path, O_RDWR)
                       : files::open_own(path, O_RDWR | O_CREAT, /*private_to_user=*/true);
    LEVIN_CHECK(file_, "comm.store", "the store's file {} cannot be opened: {}", path.string(),
                posix::reason(errno));
    // Not with a wait in the system, which has no end where the holder was stopped.
    while (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
      LEVIN_CHECK(errno == EWOULDBLOCK || errno == EINTR, "comm.store",
                  "the store's file {} cannot be locked: {}", path.string(), posix::reason(errno));
      LEVIN_CHECK(FileClock::now() < deadline, "comm.store",
                  "the store's file {} stayed locked until the timeout; look for a stopped rank, "
                  "or set MASTER_ADDR to a new file",
                  path.string());
      std::this_thread::sleep_for(kFirstPauses);
    }
    LEVIN_CHECK(::fstat(file_.number(), &status_) == 0 && status_.st_uid == ::geteuid(),
                "comm.store", "the store's file {} belongs to the user {}; name a file of your own",
                path.string(), status_.st_uid);
  }

  int64_t size() const { return status_.st_size; }
  /// Another one where the file was removed and made anew.
  uint64_t identity() const { return status_.st_ino; }

  std::string read(int64_t from) const {
    std::string text(static_cast<size_t>(std::max<int64_t>(size() - from, 0)), '\0');
    size_t filled = 0;
    while (filled < text.size()) {
      const ssize_t count = ::pread(file_.number(), text.data() + filled, text.size() - filled,
                                    from + static_cast<int64_t>(filled));
      if (count < 0 && errno == EINTR) continue;
      LEVIN_CHECK(count >= 0, "comm.store", "the store's file {} cannot be read: {}",
                  path_.string(), posix::reason(errno));
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    text.resize(filled);
    return text;
  }

  /// In one piece, which a reader sees whole or not at all but where this process dies meanwhile.
  void write(int64_t at, std::string_view text) const {
    const bool cut = at == size() || ::ftruncate(file_.number(), at) == 0;
    const bool placed = cut && ::lseek(file_.number(), at, SEEK_SET) == at;
    ssize_t count = -1;
    do {
      count = placed ? ::write(file_.number(), text.data(), text.size()) : -1;
    } while (placed && count < 0 && errno == EINTR);
    if (count == std::ssize(text)) return;
    const int error = count < 0 ? errno : ENOSPC;
    const bool undone = ::ftruncate(file_.number(), at) == 0;
    LEVIN_FAIL("comm.store", "the store's file {} cannot be written: {}{}", path_.string(),
               posix::reason(error), undone ? "" : "; an incomplete record remains at its end");
  }

 private:
  const std::filesystem::path& path_;
  posix::Descriptor file_;  // closing it unlocks
  struct stat status_ = {};
};

FileStore::FileStore(std::filesystem::path path, int64_t num_workers)
    : path_(std::move(path)), num_workers_(num_workers) {}

FileStore::~FileStore() {
  std::error_code unknown;
  if (num_workers_ == 0 || !std::filesystem::exists(path_, unknown)) return;
  try {
    if (add(kLeft, 1) >= num_workers_) std::filesystem::remove(path_, unknown);
  } catch (const std::exception&) {
    return;  // the file stays
  }
}

c10::intrusive_ptr<c10d::Store> FileStore::clone() {
  auto copy = c10::make_intrusive<FileStore>(path_, 0);
  copy->setTimeout(timeout_);
  return copy;
}

std::chrono::steady_clock::time_point FileStore::deadline() const {
  return timeout_ == kNoTimeout ? FileClock::time_point::max() : FileClock::now() + timeout_;
}

void FileStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::lock_guard guard(mutex_);
  const Locked file(path_, deadline());
  refresh(file);
  append(file, key, text_of(value), true);
}

std::vector<uint8_t> FileStore::compareSet(const std::string& key,
                                           const std::vector<uint8_t>& expected,
                                           const std::vector<uint8_t>& desired) {
  const std::lock_guard guard(mutex_);
  const Locked file(path_, deadline());
  refresh(file);
  const auto found = words_.find(key);
  const bool as_expected =
      found == words_.end() ? expected.empty() : found->second == text_of(expected);
  if (!as_expected) return found == words_.end() ? expected : bytes_of(found->second);
  append(file, key, text_of(desired), true);
  return desired;
}

std::vector<uint8_t> FileStore::get(const std::string& key) {
  while (true) {
    wait({key}, timeout_);
    const std::lock_guard guard(mutex_);
    const auto found = words_.find(key);
    if (found != words_.end()) return bytes_of(found->second);
  }
}

int64_t FileStore::add(const std::string& key, int64_t amount) {
  const std::lock_guard guard(mutex_);
  const Locked file(path_, deadline());
  refresh(file);
  const auto found = words_.find(key);
  int64_t sum = amount;
  if (found != words_.end()) {
    const std::string& text = found->second;
    int64_t before = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), before);
    LEVIN_CHECK(end.ec == std::errc() && end.ptr == text.data() + text.size(), "comm.store",
                "key {} of the store's file {} is not a number", key, path_.string());
    if (amount == 0) return before;
    sum += before;
  }
  append(file, key, std::to_string(sum), true);
  return sum;
}

bool FileStore::deleteKey(const std::string& key) {
  const std::lock_guard guard(mutex_);
  const Locked file(path_, deadline());
  refresh(file);
  if (!words_.contains(key)) return false;
  append(file, key, "", false);
  return true;
}

int64_t FileStore::getNumKeys() {
  const std::lock_guard guard(mutex_);
  refresh(Locked(path_, deadline()));
  return std::ssize(words_) - (words_.contains(kLeft) ? 1 : 0);
}

bool FileStore::check(const std::vector<std::string>& keys) {
  const std::lock_guard guard(mutex_);
  refresh(Locked(path_, deadline()));
  return std::ranges::all_of(keys, [&](const std::string& key) { return words_.contains(key); });
}

void FileStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& timeout) {
  const auto start = FileClock::now();
  while (!check(keys)) {
    const auto waited = FileClock::now() - start;
    if (timeout != kNoTimeout && waited > timeout) {
      // The text follows the stores of c10d.
      C10_THROW_ERROR(
          DistStoreError,
          fmt::format(
              "timed out: waited {} s for key {} in the store's file {}, but no rank set it",
              std::chrono::duration<double>(timeout).count(), keys.front(), path_.string()));
    }
    std::this_thread::sleep_for(waited < kLaterPauses ? kFirstPauses : kLaterPauses);
  }
}

// A writer holds the lock until its word is complete: half a word at the end is from one that died.
void FileStore::refresh(const Locked& file) {
  if (file.identity() != identity_ || file.size() < read_) {
    words_.clear();
    read_ = 0;
    identity_ = file.identity();
  }
  if (file.size() == read_) return;
  const std::string text = file.read(read_);
  std::string_view rest = text;
  if (read_ == 0) {
    const std::string_view line = rest.substr(0, kFirstLine.size());
    LEVIN_CHECK(kFirstLine.starts_with(line), "comm.store",
                "{} is not a store's file; set MASTER_ADDR to a file that does not exist yet",
                path_.string());
    if (line.size() < kFirstLine.size()) return;
    rest.remove_prefix(kFirstLine.size());
    read_ = std::ssize(kFirstLine);
  }
  Lengths lengths;
  while (rest.size() >= sizeof lengths) {
    std::memcpy(&lengths, rest.data(), sizeof lengths);
    const bool is_gone = lengths.value == kGone;
    const size_t length = is_gone ? 0 : lengths.value;
    LEVIN_CHECK(lengths.key <= kLongestKey && length <= kLongestValue, "comm.store",
                "the store's file {} is damaged at byte {}; set MASTER_ADDR to a new file",
                path_.string(), read_);
    if (rest.size() - sizeof lengths < lengths.key + length) return;
    const std::string key(rest.substr(sizeof lengths, lengths.key));
    if (is_gone) {
      words_.erase(key);
    } else {
      words_.insert_or_assign(key, std::string(rest.substr(sizeof lengths + key.size(), length)));
    }
    const size_t bytes = sizeof lengths + key.size() + length;
    rest.remove_prefix(bytes);
    read_ += static_cast<int64_t>(bytes);
  }
}

// Over what was only half written.
void FileStore::append(const Locked& file, const std::string& key, std::string_view value,
                       bool is_there) {
  LEVIN_CHECK(key.size() <= kLongestKey && value.size() <= kLongestValue, "comm.store",
              "a key of {} and a value of {} bytes are too long for the store's file {}",
              key.size(), value.size(), path_.string());
  const Lengths lengths = {static_cast<uint32_t>(key.size()),
                           is_there ? static_cast<uint32_t>(value.size()) : kGone};
  std::string text(read_ == 0 ? kFirstLine : "");
  text.append(reinterpret_cast<const char*>(&lengths), sizeof lengths).append(key).append(value);
  file.write(read_, text);
  read_ += std::ssize(text);
  if (is_there) {
    words_.insert_or_assign(key, std::string(value));
  } else {
    words_.erase(key);
  }
}

}  // namespace levin::comm
