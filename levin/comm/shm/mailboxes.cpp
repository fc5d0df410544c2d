#include "levin/comm/shm/mailboxes.h"

#include <algorithm>
#include <new>

#include "levin/base/check.h"
#include "levin/base/spin.h"
#include "levin/comm/collectives/chunks.h"

namespace levin::comm::shm {
namespace {

constexpr uint32_t kSlots = 4;
constexpr int64_t kSlotBytes = 64 << 10;
constexpr int64_t kRingBytes = kSlots * kSlotBytes;
/// The data behind the announcement in the first slot of a message.
constexpr int64_t kDataBytes = kSlotBytes - static_cast<int64_t>(sizeof(Announcement));

}  // namespace

/// The mailbox of one pair of ranks. Its memory is zero at the start.
struct Mailboxes::Box {
  alignas(64) Counter written;  ///< slots that the sender filled
  alignas(64) Counter taken;    ///< slots that the receiver emptied
  alignas(64) Word refused;     ///< by the receiver: the next two say why
  Announcement sent;
  Announcement expected;
};

/// A message under way, for the texts of errors.
struct Mailboxes::Letter {
  int64_t from = 0;
  int64_t to = 0;
  Announcement content;
};

size_t Mailboxes::reserved_bytes(int64_t size) {
  return static_cast<size_t>(
      rounded_up(size * size * static_cast<int64_t>(sizeof(Box)), kSlotBytes));
}

size_t Mailboxes::bytes(int64_t size) {
  return reserved_bytes(size) + static_cast<size_t>(size * size * kRingBytes);
}

Mailboxes::Mailboxes(Segment segment, int64_t rank, int64_t size, const Rounds& rounds,
                     const GroupFailure& failure, std::chrono::milliseconds timeout)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(size),
      rounds_(rounds),
      failure_(failure),
      timeout_(timeout) {}

Mailboxes::Box& Mailboxes::box(int64_t from, int64_t to) const {
  return *std::launder(reinterpret_cast<Box*>(segment_.data()) + from * size_ + to);
}

std::byte* Mailboxes::slot(int64_t from, int64_t to, uint32_t number) const {
  return segment_.data() + reserved_bytes(size_) + (from * size_ + to) * kRingBytes +
         number % kSlots * kSlotBytes;
}

void Mailboxes::send(Elements data, int64_t to, int64_t tag) {
  const Letter letter = {rank_, to, announce("message", data, tag)};
  Box& ours = box(rank_, to);
  uint32_t number = ours.written.get();
  if (number == 0) {  // most pairs never speak
    segment_.reserve(static_cast<size_t>(slot(rank_, to, 0) - segment_.data()), kRingBytes);
  }
  for (int64_t i = 0; i < std::max<int64_t>(num_chunks(data.bytes(), kDataBytes), 1); ++i) {
    await(letter, ours.taken, [&] { return number - ours.taken.get() < kSlots; });
    const Chunk piece = chunk_of(i, kDataBytes, data.bytes());
    std::byte* into = slot(rank_, to, number);
    if (i == 0) std::memcpy(into, &letter.content, sizeof(Announcement));
    copy_bytes(into + sizeof(Announcement), data.data + piece.begin, piece.count);
    ours.written.set(++number);
  }
}

void Mailboxes::receive(Elements data, int64_t from, int64_t tag) {
  const Letter letter = {from, rank_, announce("message", data, tag)};
  Box& ours = box(from, rank_);
  uint32_t number = ours.taken.get();
  for (int64_t i = 0; i < std::max<int64_t>(num_chunks(data.bytes(), kDataBytes), 1); ++i) {
    await(letter, ours.written, [&] { return ours.written.get() != number; });
    const std::byte* slot_of_piece = slot(from, rank_, number);
    if (i == 0) {
      std::memcpy(&ours.sent, slot_of_piece, sizeof(Announcement));
      ours.expected = letter.content;
      if (!(ours.sent == ours.expected)) {
        ours.refused.store(1);
        ours.taken.wake();
        check_refusal(letter);
      }
    }
    const Chunk piece = chunk_of(i, kDataBytes, data.bytes());
    copy_bytes(data.data + piece.begin, slot_of_piece + sizeof(Announcement), piece.count);
    ours.taken.set(++number);
  }
}

void Mailboxes::check_refusal(const Letter& letter) const {
  const Box& theirs = box(letter.from, letter.to);
  if (theirs.refused.load() == 0) return;
  check_message(theirs.sent, letter.from, theirs.expected, letter.to);
}

template <class Ready>
void Mailboxes::await(const Letter& letter, Counter& counter, const Ready& ready) const {
  if (levin::detail::spin_for(ready, levin::detail::kWakeTime)) return;
  const int64_t peer = letter.from == rank_ ? letter.to : letter.from;
  const std::chrono::milliseconds timeout = timeout_;
  levin::detail::AwakeTime waited;
  const auto text = [&] {
    const Announcement& content = letter.content;
    return fmt::format("{} x {} with tag {} from rank {} to rank {}", content.count, content.type,
                       content.argument, letter.from, letter.to);
  };
  while (!ready()) {
    check_refusal(letter);
    failure_.check();
    const std::string_view gone = rounds_.gone(peer);
    // Once more: it may have done its part before it went.
    LEVIN_CHECK(gone.empty() || ready(), "comm.peer",
                "rank {} {} before a message was complete: {}; look at its output", peer, gone,
                text());
    const auto left = timeout - waited.look();
    LEVIN_CHECK(left.count() > 0, "comm.timeout",
                "waited {} s for rank {}: {}; check what that rank is doing, or raise the timeout",
                std::chrono::duration<double>(timeout).count(), peer, text());
    counter.doze(ready, std::min<std::chrono::nanoseconds>(left, kNap));
  }
}

}  // namespace levin::comm::shm
