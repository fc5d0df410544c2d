#include "levin/files/scratch/swapper.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "levin/base/check.h"

namespace levin::files {
namespace {

constexpr int64_t kLine = 64;

int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

int64_t bytes_of(const ByteRanges& ranges) {
  int64_t bytes = 0;
  for (const ByteRange& range : ranges) bytes += lines(range.size());
  return bytes;
}

bool overlap(const ByteRanges& some, const ByteRanges& others) {
  return std::ranges::any_of(some, [&](const ByteRange& one) {
    return std::ranges::any_of(others, [&](const ByteRange& other) {
      return one.begin < other.end && other.begin < one.end;
    });
  });
}

/// Memory that is dealt out in blocks, the first that is large enough. It stays: pages that were touched once cost
/// nothing the next time.
class Arena {
 public:
  explicit Arena(int64_t size) : size_(size) {}
  ~Arena() {
    if (memory_ != nullptr) ::munmap(memory_, static_cast<size_t>(size_));
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int64_t size() const { return size_; }
  bool is_unused() const { return free_.size() == 1 && free_.begin()->second == size_; }

  std::optional<int64_t> take(int64_t bytes) {
    if (memory_ == nullptr) make();
    const auto place =
        std::ranges::find_if(free_, [&](const auto& f) { return f.second >= bytes; });
    if (place == free_.end()) return std::nullopt;
    const auto [begin, size] = *place;
    free_.erase(place);
    if (size > bytes) free_[begin + bytes] = size - bytes;
    return begin;
  }

  void give_back(int64_t begin, int64_t bytes) {
    if (bytes == 0) return;
    auto place = free_.emplace(begin, bytes).first;
    const auto next = std::next(place);
    if (next != free_.end() && begin + bytes == next->first) {
      place->second += next->second;
      free_.erase(next);
    }
    if (place == free_.begin()) return;
    const auto before = std::prev(place);
    if (before->first + before->second != begin) return;
    before->second += place->second;
    free_.erase(place);
  }

  std::byte* at(int64_t offset) const { return memory_ + offset; }

 private:
  void make() {
    void* memory = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    LEVIN_CHECK(memory != MAP_FAILED, "files.scratch.memory",
                "cannot take {} bytes of memory for offload: {}; set a smaller --offload-memory-mb",
                size_, posix::reason(errno));
    memory_ = static_cast<std::byte*>(memory);
    free_[0] = size_;
  }

  int64_t size_;
  std::byte* memory_ = nullptr;
  std::map<int64_t, int64_t> free_;  ///< size by begin
};

}  // namespace

struct Swapper::Lease::Entry {
  enum class Stage { kWaits, kQueued, kReading, kHere, kLeased, kWriting };

  ByteRanges ranges;
  int64_t bytes = 0;
  std::optional<int64_t> memory = {};  ///< place in the arena
  Stage stage = Stage::kWaits;
  bool is_dropped = false;  ///< nobody wants it once it is read
};

struct Swapper::Impl {
  using Entry = Lease::Entry;
  using Stage = Entry::Stage;
  using EntryPtr = std::shared_ptr<Entry>;

  std::shared_ptr<ScratchFile> file;
  Arena arena;
  std::mutex mutex;
  std::condition_variable work, done;
  std::list<EntryPtr> ahead;   ///< in the order of the calls: not leased yet
  std::deque<EntryPtr> reads;  ///< with memory
  std::deque<EntryPtr> writes;
  std::deque<ByteRange> dirty;  ///< written, and still in the page cache; of the writer alone
  int64_t leased = 0;           ///< entries
  EntryPtr reading, writing;    ///< under way
  bool ends = false;
  std::exception_ptr failure;
  std::thread reader, writer;

  Impl(std::shared_ptr<ScratchFile> of_file, int64_t memory_bytes)
      : file(std::move(of_file)), arena(memory_bytes / kLine * kLine) {}

  void check() const {
    if (failure) std::rethrow_exception(failure);
  }

  void start() {
    if (reader.joinable()) return;
    reader = std::thread([this] { run_reads(); });
    writer = std::thread([this] { run_writes(); });
  }
  bool has_writes() const { return writing != nullptr || !writes.empty(); }

  /// Gives memory to those that wait for it, in their order.
  void admit() {
    for (const EntryPtr& entry : ahead) {
      if (entry->stage != Stage::kWaits) continue;
      entry->memory = arena.take(entry->bytes);
      if (!entry->memory) return;
      entry->stage = Stage::kQueued;
      reads.push_back(entry);
      work.notify_all();
    }
  }

  void free(Entry& entry) {
    if (entry.memory) arena.give_back(*entry.memory, entry.bytes);
    entry.memory.reset();
    admit();
    done.notify_all();
  }

  /// Takes an entry that was read ahead out of the order.
  void drop(const EntryPtr& entry) {
    ahead.remove(entry);
    if (entry->stage == Stage::kReading) {
      entry->is_dropped = true;
      return;
    }
    std::erase(reads, entry);
    free(*entry);
  }

  /// Forgets ranges that were read ahead and have old bytes now, as others are written there.
  void drop_overlapping(const ByteRanges& written) {
    const std::vector<EntryPtr> all(ahead.begin(), ahead.end());
    for (const EntryPtr& entry : all) {
      const bool was_read = entry->stage == Stage::kReading || entry->stage == Stage::kHere;
      if (was_read && overlap(entry->ranges, written)) drop(entry);
    }
  }

  /// A read sees all writes that were before it. Returns reads.end() where none may begin now.
  std::deque<EntryPtr>::iterator next_read() {
    return std::ranges::find_if(reads, [&](const EntryPtr& read) {
      const auto clashes = [&](const EntryPtr& write) {
        return write != nullptr && overlap(read->ranges, write->ranges);
      };
      return !clashes(writing) && std::ranges::none_of(writes, clashes);
    });
  }

  void run_reads() {
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return ends || next_read() != reads.end(); });
      if (ends) return;
      const auto place = next_read();
      reading = *place;
      reads.erase(place);
      reading->stage = Stage::kReading;
      work_on(lock, [&] { read(*reading); });
      const EntryPtr entry = std::exchange(reading, nullptr);
      entry->stage = Stage::kHere;
      if (entry->is_dropped) free(*entry);
      done.notify_all();
    }
  }

  void run_writes() {
    std::unique_lock lock(mutex);
    while (true) {
      work.wait(lock, [&] { return ends || !writes.empty(); });
      if (writes.empty()) return;
      writing = writes.front();
      writes.pop_front();
      writing->stage = Stage::kWriting;
      work_on(lock, [&] { write(*writing); });
      free(*std::exchange(writing, nullptr));
      work.notify_all();
    }
  }

  /// Calls it without the lock; not after a failure.
  template <class Call>
  void work_on(std::unique_lock<std::mutex>& lock, const Call& call) {
    if (failure) return;
    lock.unlock();
    std::exception_ptr thrown;
    try {
      call();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    if (thrown && !failure) failure = thrown;
  }

  template <class Call>
  void each_range(const Entry& entry, const Call& call) const {
    std::byte* memory = arena.at(*entry.memory);
    for (const ByteRange& range : entry.ranges) {
      call(range, std::span(memory, static_cast<size_t>(range.size())));
      memory += lines(range.size());
    }
  }

  void read(const Entry& entry) {
    each_range(entry, [&](const ByteRange& range, std::span<std::byte> to) {
      file->read(range.begin, to);
    });
  }

  /// The disk had the time of an update for what was written before; now those pages leave the cache.
  void write(const Entry& entry) {
    drop_written();
    each_range(entry, [&](const ByteRange& range, std::span<std::byte> from) {
      file->write(range.begin, from);
      dirty.push_back(range);
    });
  }

  void drop_written() {
    for (; !dirty.empty(); dirty.pop_front()) file->drop(dirty.front().begin, dirty.front().size());
  }
};

Swapper::Swapper(std::shared_ptr<ScratchFile> file, int64_t memory_bytes)
    : impl_(std::make_unique<Impl>(std::move(file), memory_bytes)) {}

Swapper::~Swapper() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ends = true;
    impl_->reads.clear();
    impl_->work.notify_all();
  }
  if (impl_->reader.joinable()) {
    impl_->reader.join();
    impl_->writer.join();
  }
}

int64_t Swapper::memory_bytes() const { return impl_->arena.size(); }
const std::shared_ptr<ScratchFile>& Swapper::file() const { return impl_->file; }

void Swapper::read_ahead(const ByteRanges& ranges) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check();
  const int64_t bytes = bytes_of(ranges);
  const bool is_known = std::ranges::any_of(
      impl_->ahead, [&](const Impl::EntryPtr& entry) { return entry->ranges == ranges; });
  if (is_known || bytes > impl_->arena.size()) return;  // lease() says what is wrong
  auto entry = std::make_shared<Lease::Entry>();
  entry->ranges = ranges;
  entry->bytes = bytes;
  impl_->ahead.push_back(std::move(entry));
  impl_->start();
  impl_->admit();
}

Swapper::Lease Swapper::lease(const ByteRanges& ranges) {
  using enum Lease::Entry::Stage;
  read_ahead(ranges);
  const int64_t bytes = bytes_of(ranges);
  std::unique_lock lock(impl_->mutex);
  LEVIN_CHECK(bytes <= impl_->arena.size(), "files.scratch.memory",
              "got {} bytes of memory for offload, but {} bytes are needed at once; set "
              "--offload-memory-mb to at least {}",
              impl_->arena.size(), bytes, (bytes >> 20) + 1);
  const auto place = std::ranges::find_if(
      impl_->ahead, [&](const Impl::EntryPtr& entry) { return entry->ranges == ranges; });
  const auto entry = Impl::EntryPtr(*place);  // the list gives its own away
  // It comes before those that wait for memory, and takes that of others where there is no more.
  impl_->ahead.splice(impl_->ahead.begin(), impl_->ahead, place);
  while (entry->stage != kHere) {
    impl_->check();
    impl_->admit();
    if (entry->stage == kWaits) {
      const auto other = std::ranges::find_if(
          impl_->ahead, [&](const Impl::EntryPtr& one) { return one != entry && one->memory; });
      if (other != impl_->ahead.end()) {
        impl_->drop(Impl::EntryPtr(*other));
        continue;
      }
      const bool is_in_vain =
          impl_->reading == nullptr && !impl_->has_writes() && impl_->reads.empty();
      if (is_in_vain) {
        impl_->drop(Impl::EntryPtr(entry));
        LEVIN_FAIL(
            "files.scratch.memory",
            "{} bytes are needed at once beside {} leases in {} bytes of memory for offload; "
            "set a larger --offload-memory-mb",
            bytes, impl_->leased, impl_->arena.size());
      }
    }
    impl_->done.wait(lock);
  }
  impl_->check();
  impl_->ahead.remove(entry);
  entry->stage = kLeased;
  ++impl_->leased;
  return {*impl_, entry};
}

void Swapper::forget() {
  std::unique_lock lock(impl_->mutex);
  while (!impl_->ahead.empty()) impl_->drop(Impl::EntryPtr(impl_->ahead.back()));
  impl_->done.wait(lock, [&] { return impl_->reading == nullptr && !impl_->has_writes(); });
  impl_->check();
}

void Swapper::wait() {
  std::unique_lock lock(impl_->mutex);
  impl_->done.wait(lock, [&] { return !impl_->has_writes(); });
  impl_->check();
}

Swapper::Lease::Lease(Swapper::Impl& swapper, std::shared_ptr<Entry> entry)
    : swapper_(&swapper), entry_(std::move(entry)) {}

Swapper::Lease::Lease(Lease&& other) noexcept
    : swapper_(other.swapper_), entry_(std::exchange(other.entry_, nullptr)) {}

Swapper::Lease::~Lease() {
  if (entry_ == nullptr) return;
  const std::lock_guard lock(swapper_->mutex);
  --swapper_->leased;
  swapper_->free(*entry_);
}

std::span<std::byte> Swapper::Lease::bytes(size_t range) const {
  std::byte* memory = swapper_->arena.at(*entry_->memory);
  for (size_t i = 0; i < range; ++i) memory += lines(entry_->ranges[i].size());
  return {memory, static_cast<size_t>(entry_->ranges[range].size())};
}

void Swapper::Lease::write_back() {
  const auto entry = std::exchange(entry_, nullptr);
  const std::lock_guard lock(swapper_->mutex);
  --swapper_->leased;
  swapper_->writes.push_back(entry);
  swapper_->drop_overlapping(entry->ranges);
  swapper_->work.notify_all();
  swapper_->check();
}

}  // namespace levin::files
