#include "levin/comm/shm/group.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>

#include "levin/base/check.h"
#include "levin/comm/collectives/chunks.h"

namespace levin::comm::shm {
namespace {

constexpr int64_t kPage = 4096;
// A place is the number of an arena, counted from 1, and an offset in each rank's part of it.
constexpr int kOffsetBits = 40;
constexpr int64_t kNoElements = -1;

}  // namespace

/// One call of allocate(): the same number of bytes of every rank.
struct Group::Arena {
  Segment segment;
  int64_t bytes = 0;  ///< size of a rank's part

  std::byte* of_rank(int64_t rank) const { return segment.data() + rank * bytes; }
};

Group::Group(int64_t rank, int64_t size, const Board& board, const GroupOptions& options)
    : rank_(rank),
      size_(size),
      options_(options),
      links_(rank, size, board, std::chrono::steady_clock::now() + options.timeout),
      segment_(links_.share(
          static_cast<size_t>(rounded_up(static_cast<int64_t>(Rounds::bytes(size)), kPage) +
                              2 * size * options.chunk_bytes),
          std::chrono::steady_clock::now() + options.timeout)),
      rounds_(segment_.data(), rank, size, options.timeout),
      mailboxes_(links_.share(Mailboxes::bytes(size), Mailboxes::reserved_bytes(size),
                              std::chrono::steady_clock::now() + options.timeout),
                 rank, size, rounds_, failure_, options.timeout) {
  segment_.close_descriptor();
  links_.watch([this](int64_t gone) { rounds_.mark_gone(gone); });
}

Group::~Group() {
  links_.stop_watching();  // it writes to the lines, which go before the links do
  rounds_.leave();
}

void Group::set_timeout(std::chrono::milliseconds timeout) {
  rounds_.set_timeout(timeout);
  mailboxes_.set_timeout(timeout);
}

std::byte* Group::staging(int64_t rank, size_t parity) const {
  const int64_t lines = rounded_up(static_cast<int64_t>(Rounds::bytes(size_)), kPage);
  const int64_t buffer = 2 * rank + static_cast<int64_t>(parity);
  return segment_.data() + lines + buffer * options_.chunk_bytes;
}

void Group::exchange(const Announcement& announcement, int64_t rounds, const Write& write,
                     const Read& read) {
  run([&] {
    rounds_.begin(announcement);
    turn(rounds, write, read);
  });
}

void Group::turn(int64_t rounds, const Write& write, const Read& read) {
  for (int64_t round = 0; round < std::max<int64_t>(rounds, 1); ++round) {
    const size_t parity = rounds_.parity();
    write(round, staging(rank_, parity));
    rounds_.arrive();
    rounds_.await();
    read(round, Buffers{*this, parity});
  }
}

// The others hear of it at once.
void Group::close(std::string_view why) {
  failure_.note(why);
  rounds_.leave();
}

int64_t Group::most(Elements elements, int64_t parts) const {
  return options_.chunk_bytes / (parts * 64) * 64 / elements.width();
}

int64_t Group::place_of(Elements elements) const {
  if (elements.count == 0) return kNoElements;
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const std::byte* mine = arenas_[i]->of_rank(rank_);
    const bool inside =
        std::greater_equal<>()(elements.data, mine) &&
        std::less_equal<>()(elements.data + elements.bytes(), mine + arenas_[i]->bytes);
    if (inside) return static_cast<int64_t>(i + 1) << kOffsetBits | (elements.data - mine);
  }
  return 0;
}

void Group::meet(const Announcement& what) {
  exchange(what, 1, [](int64_t, std::byte*) {}, [](int64_t, const Buffers&) {});
}

Group::Sources Group::meet_in_place(const Announcement& announcement) {
  Sources all;
  exchange(
      announcement, 1, [](int64_t, std::byte*) {},
      [&](int64_t, const Buffers&) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          const int64_t place = rounds_.announced(rank).place;
          if (place == 0) return all.clear();
          if (place == kNoElements) {
            all.push_back(nullptr);
            continue;
          }
          const Arena& arena = *arenas_[static_cast<size_t>((place >> kOffsetBits) - 1)];
          all.push_back(arena.of_rank(rank) + (place & ((int64_t{1} << kOffsetBits) - 1)));
        }
      });
  return all;
}

void Group::part(std::string_view name) { meet(announce(name, "", 0)); }

void Group::send(Elements data, int64_t to, int64_t tag) {
  run([&] { mailboxes_.send(data, to, tag); });
}

void Group::receive(Elements data, int64_t from, int64_t tag) {
  run([&] { mailboxes_.receive(data, from, tag); });
}

void Group::run(const std::function<void()>& body) {
  failure_.check();
  try {
    body();
  } catch (const std::exception& error) {
    close(error.what());
    throw;
  }
}

std::shared_ptr<std::byte> Group::allocate(int64_t bytes) {
  const int64_t part = rounded_up(std::max<int64_t>(bytes, 1), kPage);
  meet(announce("allocate", "Byte", bytes));
  auto arena = std::make_shared<Arena>();
  arena->segment = links_.share(static_cast<size_t>(part * size_),
                                std::chrono::steady_clock::now() + options_.timeout);
  arena->segment.close_descriptor();
  arena->bytes = part;
  arenas_.push_back(arena);
  std::byte* mine = arena->of_rank(rank_);
  // Its pages go back to the system with the last tensor; the addresses stay until the group ends.
  return {mine, [arena, part](std::byte* data) {
            ::madvise(data, static_cast<size_t>(part), MADV_REMOVE);
          }};
}

SharedMemory Group::share(at::ScalarType type, Counts counts) {
  meet(announce_parts("share", c10::toString(type), counts));
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  const int64_t bytes = std::max<int64_t>(sum_of(counts) * width, 1);
  Segment segment =
      links_.share(static_cast<size_t>(bytes), std::chrono::steady_clock::now() + options_.timeout);
  return {std::move(segment), begin_of(rank_, counts) * width,
          counts[static_cast<size_t>(rank_)] * width};
}

}  // namespace levin::comm::shm
