// State in memory of the host: pinned for a GPU, with a stream of its own for each direction, as
// ZeRO-Offload (Ren et al. 2021, section 4) has it. The copies of one portion run beside the update of another.

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/optim/offload/state_memory.h"

namespace levin::optim {
namespace {

using files::ByteRange;
using files::ByteRanges;

constexpr int64_t kLine = 64;
constexpr int64_t kSmallestChunk = int64_t{1} << 20;

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

/// The end of work that was given to a stream; none on the CPU, where work has ended when its call returns.
using EventPtr = std::shared_ptr<c10::Event>;

/// The streams of a device for copies in each direction; none for the CPU.
class Streams {
 public:
  explicit Streams(at::Device device) : device_(device) {
    if (device.is_cpu()) return;
    guard_.emplace(device.type());
    in_ = guard_->getStreamFromGlobalPool(device, /*isHighPriority=*/false);
    out_ = guard_->getStreamFromGlobalPool(device, /*isHighPriority=*/false);
  }

  const std::optional<c10::Stream>& in() const { return in_; }
  const std::optional<c10::Stream>& out() const { return out_; }
  /// The stream on which the caller computes.
  std::optional<c10::Stream> current() const {
    return guard_ ? std::optional(guard_->getStream(device_)) : std::nullopt;
  }
  EventPtr record(const std::optional<c10::Stream>& stream) const {
    if (!stream) return nullptr;
    auto event = std::make_shared<c10::Event>(device_.type());
    event->record(*stream);
    return event;
  }
  static void wait(const std::optional<c10::Stream>& stream, const EventPtr& event) {
    if (stream && event) event->block(*stream);
  }

 private:
  at::Device device_;
  std::optional<c10::impl::VirtualGuardImpl> guard_;
  std::optional<c10::Stream> in_, out_;
};

/// Memory of the device that is dealt out in blocks, the first that is large enough. A block may be given back while
/// work on it is under way: whoever takes it next waits for those events, on the device.
class Arena {
 public:
  struct Block {
    int64_t begin = 0;
    std::vector<EventPtr> busy = {};
  };

  Arena(at::Device device, int64_t size) : device_(device), size_(size) {}

  int64_t size() const { return size_; }

  std::optional<Block> take(int64_t bytes) {
    if (!memory_.defined()) {
      memory_ = at::empty({size_}, at::TensorOptions(at::kByte).device(device_));
      free_[0] = {size_, {}};
    }
    if (bytes == 0) return Block{};
    const auto place =
        std::ranges::find_if(free_, [&](const auto& f) { return f.second.size >= bytes; });
    if (place == free_.end()) return std::nullopt;
    Free left = std::move(place->second);
    Block block{place->first, left.busy};
    free_.erase(place);
    left.size -= bytes;
    if (left.size > 0) free_[block.begin + bytes] = std::move(left);
    return block;
  }

  void give_back(int64_t begin, int64_t bytes, const EventPtr& busy) {
    if (bytes == 0) return;
    Free whole{bytes, {}};
    if (busy) whole.busy.push_back(busy);
    const auto next = free_.find(begin + bytes);
    if (next != free_.end()) join(whole, next);
    const auto after = free_.lower_bound(begin);
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second.size == begin) {
        begin = before->first;
        join(whole, before);
      }
    }
    std::erase_if(whole.busy, [](const EventPtr& event) { return event->query(); });
    free_[begin] = std::move(whole);
  }

  at::Tensor at(int64_t begin, int64_t bytes) const { return memory_.narrow(0, begin, bytes); }

 private:
  struct Free {
    int64_t size = 0;
    std::vector<EventPtr> busy = {};
  };

  void join(Free& whole, std::map<int64_t, Free>::iterator other) {
    whole.size += other->second.size;
    whole.busy.insert(whole.busy.end(), other->second.busy.begin(), other->second.busy.end());
    free_.erase(other);
  }

  at::Device device_;
  int64_t size_;
  at::Tensor memory_;
  std::map<int64_t, Free> free_;  ///< by begin
};

/// Bytes of the host, one chunk after another. LibTorch's allocator of pinned memory rounds each up to a power of two,
/// so that what is taken is cut into such.
class HostBytes {
 public:
  explicit HostBytes(bool is_pinned) : is_pinned_(is_pinned) {}

  int64_t size() const { return size_; }

  int64_t take(int64_t bytes) {
    const int64_t begin = size_;
    std::vector<Chunk> chunks;
    int64_t end = begin;
    for (int64_t left = lines(bytes); left > 0;) {
      const int64_t size = left <= kSmallestChunk
                               ? left
                               : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(left)));
      chunks.push_back({end, made(size, bytes)});
      end += size;
      left -= size;
    }
    chunks_.insert(chunks_.end(), chunks.begin(), chunks.end());
    size_ = end;
    return begin;
  }

  /// Calls call(part of a chunk, offset of the part in the range).
  template <class Call>
  void each_part(const ByteRange& range, const Call& call) const {
    auto chunk = std::ranges::upper_bound(chunks_, range.begin, {}, &Chunk::begin);
    if (chunk != chunks_.begin()) --chunk;
    for (; chunk != chunks_.end() && chunk->begin < range.end; ++chunk) {
      const int64_t begin = std::max(range.begin, chunk->begin);
      const int64_t end = std::min(range.end, chunk->begin + chunk->bytes.numel());
      if (begin >= end) continue;
      call(chunk->bytes.narrow(0, begin - chunk->begin, end - begin), begin - range.begin);
    }
  }

  /// Returns the bytes if they lie in one chunk; an undefined tensor else.
  at::Tensor in_one(const ByteRange& range) const {
    at::Tensor found;
    each_part(range, [&](const at::Tensor& part, int64_t) {
      if (part.numel() == range.size()) found = part;
    });
    return found;
  }

 private:
  struct Chunk {
    int64_t begin = 0;
    at::Tensor bytes;
  };

  at::Tensor made(int64_t size, int64_t of) const {
    try {
      return at::empty({size}, at::TensorOptions(at::kByte).pinned_memory(is_pinned_)).zero_();
    } catch (const c10::Error& error) {
      LEVIN_FAIL("optim.offload",
                 "cannot take {} bytes of {}memory of the host for the optimizer's state ({}); "
                 "shard it with --strategy fsdp or zero, or leave --offload out",
                 of, is_pinned_ ? "pinned " : "", error.what_without_backtrace());
    }
  }

  bool is_pinned_;
  int64_t size_ = 0;
  std::vector<Chunk> chunks_;  ///< by begin
};

/// A dense tensor over bytes.
at::Tensor tensor_over(const at::Tensor& bytes, const SlotPlace& place) {
  const auto element = static_cast<int64_t>(c10::elementSize(place.type));
  return at::empty({0}, bytes.options().dtype(place.type))
      .set_(bytes.storage(), bytes.storage_offset() / element, place.sizes, place.strides);
}

class HostMemory final : public StateMemory {
 public:
  HostMemory(at::Device device, int64_t memory_bytes)
      : device_(device),
        streams_(device),
        host_(/*is_pinned=*/device.is_cuda()),
        arena_(device, memory_bytes / kLine * kLine) {}
  ~HostMemory() override {
    if (streams_.in()) streams_.in()->synchronize();
    if (streams_.out()) streams_.out()->synchronize();
  }

  at::Device device() const override { return device_; }
  int64_t memory_bytes() const override { return arena_.size(); }
  int64_t size() const override { return host_.size(); }
  int64_t take(int64_t bytes) override { return host_.take(bytes); }

  at::Tensor at_rest(const SlotPlace& place) const override {
    if (place.numel == 0) return at::empty_strided(place.sizes, place.strides, place.type);
    const ByteRange range{place.begin, place.begin + place.bytes()};
    const at::Tensor whole = host_.in_one(range);
    if (whole.defined()) return tensor_over(whole, place);
    const at::Tensor copy = at::empty({range.size()}, at::kByte);
    host_.each_part(range, [&](const at::Tensor& part, int64_t offset) {
      copy.narrow(0, offset, part.numel()).copy_(part);
    });
    return tensor_over(copy, place);
  }

  void read_ahead(const ByteRanges& ranges) override {
    if (find(ranges) != ahead_.end()) return;
    if (auto block = arena_.take(bytes_of(ranges))) start(ranges, std::move(*block));
  }

  std::unique_ptr<Lease> lease(const ByteRanges& ranges) override {
    auto place = find(ranges);
    if (place == ahead_.end()) place = start(ranges, block_for(bytes_of(ranges)));
    Entry entry = std::move(*place);
    ahead_.erase(place);
    Streams::wait(streams_.current(), entry.ready);
    leased_ += entry.bytes;
    return std::make_unique<HostLease>(*this, std::move(entry));
  }

  void forget() override {
    while (!ahead_.empty()) drop(ahead_.begin());
    if (streams_.in()) streams_.in()->synchronize();
    wait();
  }

  void wait() override {
    if (streams_.out()) streams_.out()->synchronize();
    written_.clear();
  }

 protected:
  void write(const SlotPlace& place, const Write& write) override {
    const auto all_of_it = [](const at::Tensor& other) { return other; };
    const at::Tensor values = at_rest(place);
    write(values, all_of_it);
    if (place.numel == 0) return;
    const ByteRange range{place.begin, place.begin + place.bytes()};
    if (host_.in_one(range).defined()) return;
    const at::Tensor bytes =
        at::empty({0}, at::kByte).set_(values.storage(), /*storage_offset=*/0, {range.size()}, {1});
    host_.each_part(range, [&](const at::Tensor& part, int64_t offset) {
      part.copy_(bytes.narrow(0, offset, part.numel()));
    });
  }

 private:
  /// Ranges that are on the device, or on their way to it.
  struct Entry {
    ByteRanges ranges;
    int64_t bytes = 0;
    int64_t begin = 0;  ///< in the arena
    EventPtr ready;
  };
  /// Ranges that are on their way to the host.
  struct Written {
    ByteRanges ranges;
    EventPtr done;
  };

  class HostLease final : public Lease {
   public:
    HostLease(HostMemory& memory, Entry entry) : memory_(&memory), entry_(std::move(entry)) {}
    ~HostLease() override {
      if (memory_ == nullptr) return;
      const auto& streams = memory_->streams_;
      memory_->leased_ -= entry_.bytes;
      memory_->arena_.give_back(entry_.begin, entry_.bytes, streams.record(streams.current()));
    }
    at::Tensor bytes(size_t range) const override { return memory_->on_device(entry_, range); }
    void write_back() override { std::exchange(memory_, nullptr)->write_back(entry_); }

   private:
    HostMemory* memory_;
    Entry entry_;
  };

  std::list<Entry>::iterator find(const ByteRanges& ranges) {
    return std::ranges::find(ahead_, ranges, &Entry::ranges);
  }

  at::Tensor on_device(const Entry& entry, size_t number) const {
    int64_t begin = entry.begin;
    for (size_t i = 0; i < number; ++i) begin += lines(entry.ranges[i].size());
    return arena_.at(begin, entry.ranges[number].size());
  }

  /// Calls copy(part on the host, the same part on the device) for all that is in the ranges.
  template <class Copy>
  void each_part(const Entry& entry, const Copy& copy) const {
    for (size_t i = 0; i < entry.ranges.size(); ++i) {
      const at::Tensor device = on_device(entry, i);
      host_.each_part(entry.ranges[i], [&](const at::Tensor& part, int64_t offset) {
        copy(part, device.narrow(0, offset, part.numel()));
      });
    }
  }

  /// Takes memory from what was read ahead, where there is no other.
  Arena::Block block_for(int64_t bytes) {
    while (true) {
      if (auto block = arena_.take(bytes)) return std::move(*block);
      LEVIN_CHECK(
          !ahead_.empty(), "files.scratch.memory",
          "got {} bytes of memory for offload, but {} bytes are needed at once beside {} that "
          "are in use; set --offload-memory-mb to at least {}",
          arena_.size(), bytes, leased_, ((bytes + leased_) >> 20) + 1);
      drop(std::prev(ahead_.end()));
    }
  }

  /// Starts the copy to the device, behind the work on that memory and the writes of the same bytes.
  std::list<Entry>::iterator start(const ByteRanges& ranges, Arena::Block block) {
    const at::NoGradGuard no_grad;
    Entry entry{ranges, bytes_of(ranges), block.begin, nullptr};
    // The arena's memory may have been used by work that is under way on this stream.
    if (!std::exchange(has_begun_, true)) block.busy.push_back(streams_.record(streams_.current()));
    for (const EventPtr& busy : block.busy) Streams::wait(streams_.in(), busy);
    for (const Written& written : written_) {
      if (overlap(written.ranges, ranges)) Streams::wait(streams_.in(), written.done);
    }
    const c10::OptionalStreamGuard guard(streams_.in());
    each_part(entry, [](const at::Tensor& host, const at::Tensor& device) {
      device.copy_(host, /*non_blocking=*/true);
    });
    entry.ready = streams_.record(streams_.in());
    ahead_.push_back(std::move(entry));
    return std::prev(ahead_.end());
  }

  void drop(std::list<Entry>::iterator place) {
    arena_.give_back(place->begin, place->bytes, place->ready);
    ahead_.erase(place);
  }

  void write_back(const Entry& entry) {
    const at::NoGradGuard no_grad;
    leased_ -= entry.bytes;
    Streams::wait(streams_.out(), streams_.record(streams_.current()));
    // Whoever reads the same bytes now would write to the device what is old.
    for (const Entry& other : ahead_) {
      if (overlap(other.ranges, entry.ranges)) Streams::wait(streams_.out(), other.ready);
    }
    {
      const c10::OptionalStreamGuard guard(streams_.out());
      each_part(entry, [](const at::Tensor& host, const at::Tensor& device) {
        host.copy_(device, /*non_blocking=*/true);
      });
    }
    const EventPtr done = streams_.record(streams_.out());
    arena_.give_back(entry.begin, entry.bytes, done);
    for (auto place = ahead_.begin(); place != ahead_.end();) {
      const auto next = std::next(place);
      if (overlap(place->ranges, entry.ranges)) drop(place);
      place = next;
    }
    if (!done) return;
    std::erase_if(written_, [](const Written& written) { return written.done->query(); });
    written_.push_back({entry.ranges, done});
  }

  at::Device device_;
  Streams streams_;
  HostBytes host_;
  Arena arena_;
  bool has_begun_ = false;
  int64_t leased_ = 0;      ///< bytes
  std::list<Entry> ahead_;  ///< in the order of the calls: not leased yet
  std::vector<Written> written_;
};

}  // namespace

std::shared_ptr<StateMemory> make_host_memory(at::Device device, int64_t memory_bytes) {
  return std::make_shared<HostMemory>(device, memory_bytes);
}

}  // namespace levin::optim
