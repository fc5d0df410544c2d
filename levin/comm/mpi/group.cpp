#include "levin/comm/mpi/group.h"

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/spin.h"
#include "levin/comm/chunks.h"

namespace levin::comm::mpi {
namespace {

// All announce with messages of one length, or MPI would fail before the texts can be compared.
constexpr int64_t kNoteBytes = 256;
constexpr int64_t kTinyBytes = kNoteBytes - static_cast<int64_t>(sizeof(Announcement));
// Up to here, of all ranks together, one exchange of everything beats two of parts.
constexpr int64_t kSmallBytes = 128 << 10;
// What one exchange carries: the parts of all ranks stay in a core's second cache.
constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kMostBytes = 1 << 30;  // of one message: MPI counts in int
// Who waits for longer than a slow message takes leaves the core to others.
constexpr std::chrono::milliseconds kPatience(50);
constexpr std::chrono::microseconds kNap(100);

constexpr int kCollectiveTag = 0;
constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;
constexpr int kStartTag = 32000;  // in the world, where others may send as well

/// FNV-1a: other ranks, or in another order, give another number.
int64_t fingerprint(std::span<const int> ranks) {
  uint64_t hash = 14695981039346656037U;
  for (const int rank : ranks) hash = (hash ^ static_cast<uint64_t>(rank)) * 1099511628211U;
  return static_cast<int64_t>(hash);
}

}  // namespace

Group::Group(Library& library, std::span<const int> ranks, std::chrono::milliseconds timeout)
    : library_(library), timeout_(timeout), rank_(library.place.rank), size_(std::ssize(ranks)) {
  const auto operation = announce("the start of a group", "", size_, fingerprint(ranks));
  group_ = ask(operation, [](Module& mpi) { return mpi.world(); });
  gather_members(operation, ranks);
  group_ = ask(operation, [&](Module& mpi) { return mpi.make_group(ranks); });
  rank_ = std::ranges::find(ranks, library.place.rank) - ranks.begin();
}

// The first hears of all, then all hear of the first; also when their lists differ.
void Group::gather_members(const Announcement& operation, std::span<const int> ranks) {
  Announcement mine = operation;
  std::vector<Announcement> theirs(ranks.size(), operation);
  std::vector<Letter> receives, sends;
  const bool is_first = rank_ == ranks[0];
  for (size_t i = 0; i < (is_first ? ranks.size() : 1); ++i) {
    const auto letter = [&](Announcement& note) {
      return Letter{ranks[i], {reinterpret_cast<std::byte*>(&note), at::kByte, sizeof(note)}};
    };
    receives.push_back(letter(theirs[i]));
    sends.push_back(letter(mine));
  }
  if (!is_first) exchange(operation, {}, sends, kStartTag);
  exchange(operation, receives, {}, kStartTag);
  if (is_first) exchange(operation, {}, sends, kStartTag);
  for (const Announcement& note : theirs) {
    LEVIN_CHECK(note == mine, "comm.mismatch",
                "a group of {} ranks here is one of {} in another rank, or of others or in another "
                "order; all its ranks must name the same",
                mine.count, note.count);
  }
}

Group::~Group() {
  if (failure_.is_noted()) return;  // MPI may still be at work in it
  try {
    ask(announce("the end of a group", "", size_), [&](Module& mpi) { mpi.free_group(group_); });
  } catch (const std::exception&) {
    library_.module.fail();
  }
}

template <class Body>
void Group::run(const Body& body) {
  failure_.check();
  try {
    body();
  } catch (const std::exception& error) {
    failure_.note(error.what());
    throw;
  }
}

// One call at a time, whichever lane it comes from.
template <class Call>
std::invoke_result_t<Call, Module&> Group::ask(const Announcement& operation, const Call& call) {
  const std::lock_guard lock(library_.mutex);
  try {
    return call(library_.module);
  } catch (const std::runtime_error& error) {
    library_.module.fail();
    LEVIN_FAIL("comm.mpi", "{}: {}", operation.text(), error.what());
  }
}

void Group::wait(const Announcement& operation, std::span<Request> requests) {
  const auto done = [&] { return ask(operation, [&](Module& mpi) { return mpi.test(requests); }); };
  if (levin::detail::spin_until(done)) return;
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::milliseconds timeout = timeout_;
  while (!done()) {
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > timeout) {
      ask(operation, [&](Module& mpi) { mpi.fail(); });
      LEVIN_FAIL("comm.timeout",
                 "waited {} s in {}, collective {}, for other ranks; see where each is, or raise "
                 "the timeout",
                 std::chrono::duration<double>(timeout).count(), operation.text(), number_.load());
    }
    if (waited > kPatience) {
      std::this_thread::sleep_for(kNap);
    } else {
      std::this_thread::yield();
    }
  }
}

Group::Sources Group::meet(const Announcement& announcement, Elements mine) {
  ++number_;
  scratch_.assign(static_cast<size_t>(size_ * kNoteBytes), std::byte{0});
  std::byte* note = scratch_.data() + rank_ * kNoteBytes;
  std::memcpy(note, &announcement, sizeof(announcement));
  const bool is_tiny = mine.bytes() <= kTinyBytes;
  if (is_tiny) copy_bytes(note + sizeof(announcement), mine.data, mine.bytes());
  gather_in_place(announcement, scratch_.data(),
                  std::vector<int>(static_cast<size_t>(size_), kNoteBytes));
  Sources sources;
  for (int64_t rank = 0; rank < size_; ++rank) {
    Announcement theirs;
    const std::byte* from = scratch_.data() + rank * kNoteBytes;
    std::memcpy(&theirs, from, sizeof(theirs));
    check_same(announcement, rank_, theirs, rank, number_);
    if (is_tiny) sources.push_back(from + sizeof(announcement));
  }
  return sources;
}

void Group::gather_in_place(const Announcement& operation, std::byte* data,
                            const std::vector<int>& counts) {
  std::vector<int> places = {0};
  for (const int count : counts) places.push_back(places.back() + count);
  Request request = ask(operation, [&](Module& mpi) {
    return mpi.all_gather(data, counts.data(), places.data(), group_);
  });
  wait(operation, {&request, 1});
}

Group::Sources Group::gather_small(const Announcement& operation, Elements mine) {
  const int64_t bytes = mine.bytes();
  scratch_.resize(static_cast<size_t>(bytes * size_));
  copy_bytes(scratch_.data() + rank_ * bytes, mine.data, bytes);
  gather_in_place(operation, scratch_.data(),
                  std::vector<int>(static_cast<size_t>(size_), static_cast<int>(bytes)));
  Sources sources;
  for (int64_t rank = 0; rank < size_; ++rank) sources.push_back(scratch_.data() + rank * bytes);
  return sources;
}

Group::Sources Group::meet_small(const Announcement& announcement, Elements mine) {
  Sources sources = meet(announcement, mine);
  if (!sources.empty() || mine.bytes() * size_ > kSmallBytes) return sources;
  return gather_small(announcement, mine);
}

// To the next rank first: not all to one at a time.
std::vector<Group::Letter> Group::letters(std::span<const Elements> elements) const {
  std::vector<Letter> all;
  for (int64_t i = 1; i <= size_; ++i) {
    const int64_t rank = (rank_ + i) % size_;
    all.push_back({rank, elements[static_cast<size_t>(rank)]});
  }
  return all;
}

void Group::exchange(const Announcement& operation, std::span<const Letter> receives,
                     std::span<const Letter> sends, int tag) {
  std::vector<Request> requests;
  std::vector<std::pair<int64_t, int>> wanted;  // of each receive: rank, bytes
  const auto start = [&](const Letter& letter, const auto& begin) {
    const int64_t bytes = letter.elements.bytes();
    // At least one message, so that the other side learns of a length that it does not expect.
    for (int64_t i = 0; i < std::max<int64_t>(num_chunks(bytes, kMostBytes), 1); ++i) {
      const Chunk piece = chunk_of(i, kMostBytes, bytes);
      requests.push_back(ask(operation, [&](Module& mpi) {
        return begin(mpi, letter.elements.data + piece.begin, static_cast<int>(piece.count));
      }));
      if (requests.back().receives) wanted.emplace_back(letter.rank, static_cast<int>(piece.count));
    }
  };
  for (const Letter& letter : receives) {
    if (letter.rank == rank_) continue;
    start(letter, [&](Module& mpi, std::byte* data, int bytes) {
      return mpi.receive(data, bytes, static_cast<int>(letter.rank), tag, group_);
    });
  }
  for (const Letter& letter : sends) {
    if (letter.rank == rank_) continue;
    start(letter, [&](Module& mpi, const std::byte* data, int bytes) {
      return mpi.send(data, bytes, static_cast<int>(letter.rank), tag, group_);
    });
  }
  wait(operation, requests);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [rank, bytes] = wanted[i];
    const int came = requests[i].bytes;
    LEVIN_CHECK(came == bytes, "comm.mismatch", "{}: rank {} sent {} bytes and rank {} expects {}",
                operation.text(), rank, came == Request::kTooLong ? "more" : std::to_string(came),
                rank_, bytes);
  }
}

Group::Sources Group::exchange_parts(const Announcement& operation,
                                     std::span<const Elements> parts) {
  const Elements& mine = parts[static_cast<size_t>(rank_)];
  const int64_t stride = rounded_up(mine.bytes(), 64);
  scratch_.resize(static_cast<size_t>(stride * size_));
  std::vector<Elements> theirs;
  Sources sources;
  for (int64_t rank = 0; rank < size_; ++rank) {
    theirs.push_back({scratch_.data() + rank * stride, mine.type, mine.count});
    sources.push_back(rank == rank_ ? mine.data : theirs.back().data);
  }
  exchange(operation, letters(theirs), letters(parts), kCollectiveTag);
  return sources;
}

void Group::barrier() {
  run([&] { meet(announce("barrier", "", 0)); });
}

void Group::all_reduce(Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    const auto operation = announce("all_reduce", data, argument_of(reduction));
    const Sources small = meet_small(operation, data);
    if (!small.empty()) return comm::reduce(reduction, data.type, data.data, small, data.count);
    const int64_t most = kChunkBytes / data.width();
    for (int64_t i = 0; i < num_chunks(data.count, most); ++i) {
      const Chunk place = chunk_of(i, most, data.count);
      const Elements chunk = data.part(place.begin, place.count);
      std::vector<Elements> parts;
      std::vector<int> counts;
      for (int64_t rank = 0; rank < size_; ++rank) {
        const Chunk share = share_of(rank, size_, chunk.count);
        parts.push_back(chunk.part(share.begin, share.count));
        counts.push_back(static_cast<int>(parts.back().bytes()));
      }
      const Elements& mine = parts[static_cast<size_t>(rank_)];
      const Sources sources = exchange_parts(operation, parts);
      comm::reduce(reduction, data.type, mine.data, sources, mine.count);
      gather_in_place(operation, chunk.data, counts);
    }
  });
}

// Each reduces its share and sends it to the root.
void Group::reduce(Elements data, int64_t root, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    const auto operation = announce("reduce", data, argument_of(reduction, root));
    const Sources small = meet_small(operation, data);
    if (!small.empty()) {
      if (rank_ == root) comm::reduce(reduction, data.type, data.data, small, data.count);
      return;
    }
    const int64_t most = kChunkBytes / data.width();
    for (int64_t i = 0; i < num_chunks(data.count, most); ++i) {
      const Chunk place = chunk_of(i, most, data.count);
      const Elements chunk = data.part(place.begin, place.count);
      std::vector<Elements> parts;
      for (int64_t rank = 0; rank < size_; ++rank) {
        const Chunk share = share_of(rank, size_, chunk.count);
        parts.push_back(chunk.part(share.begin, share.count));
      }
      const Elements& mine = parts[static_cast<size_t>(rank_)];
      const Sources sources = exchange_parts(operation, parts);
      // Elsewhere than in the data: that of ranks other than the root stays what it was.
      std::vector<std::byte> reduced(static_cast<size_t>(rank_ == root ? 0 : mine.bytes()));
      const Elements result = {rank_ == root ? mine.data : reduced.data(), mine.type, mine.count};
      comm::reduce(reduction, data.type, result.data, sources, mine.count);
      const std::array<Letter, 1> share = {{{root, result}}};
      if (rank_ == root) {
        exchange(operation, letters(parts), {}, kCollectiveTag);
      } else {
        exchange(operation, {}, share, kCollectiveTag);
      }
    }
  });
}

void Group::broadcast(Elements data, int64_t root) {
  run([&] {
    const auto operation = announce("broadcast", data, root);
    const Sources tiny = meet(operation, data);
    if (!tiny.empty()) {
      return copy_bytes(data.data, tiny[static_cast<size_t>(root)],
                        rank_ == root ? 0 : data.bytes());
    }
    for (int64_t i = 0; i < num_chunks(data.bytes(), kMostBytes); ++i) {
      const Chunk piece = chunk_of(i, kMostBytes, data.bytes());
      Request request = ask(operation, [&](Module& mpi) {
        return mpi.broadcast(data.data + piece.begin, static_cast<int>(piece.count),
                             static_cast<int>(root), group_);
      });
      wait(operation, {&request, 1});
    }
  });
}

void Group::all_gather(Elements result, Elements part) {
  std::vector<Elements> results;
  for (int64_t rank = 0; rank < size_; ++rank) {
    results.push_back(result.part(rank * part.count, part.count));
  }
  if (part.bytes() <= kTinyBytes || result.bytes() > kMostBytes) return all_gather(results, part);
  run([&] {
    const auto operation = announce("all_gather", part);
    meet(operation);
    std::byte* mine = results[static_cast<size_t>(rank_)].data;
    if (mine != part.data) copy_bytes(mine, part.data, part.bytes());
    gather_in_place(operation, result.data,
                    std::vector<int>(static_cast<size_t>(size_), static_cast<int>(part.bytes())));
  });
}

void Group::all_gather(std::span<const Elements> results, Elements part) {
  run([&] {
    const auto operation = announce("all_gather", part);
    const Sources small = meet_small(operation, part);
    const Elements& own = results[static_cast<size_t>(rank_)];
    if (own.data != part.data) copy_bytes(own.data, part.data, part.bytes());
    if (small.empty()) {
      const std::vector<Elements> parts(static_cast<size_t>(size_), part);
      return exchange(operation, letters(results), letters(parts), kCollectiveTag);
    }
    for (int64_t rank = 0; rank < size_; ++rank) {
      const auto i = static_cast<size_t>(rank);
      if (rank != rank_) copy_bytes(results[i].data, small[i], part.bytes());
    }
  });
}

void Group::gather(std::span<const Elements> results, Elements part, int64_t root) {
  run([&] {
    const auto operation = announce("gather", part, root);
    meet(operation);
    if (rank_ != root) {
      const std::array<Letter, 1> mine = {{{root, part}}};
      return exchange(operation, {}, mine, kCollectiveTag);
    }
    copy_bytes(results[static_cast<size_t>(root)].data, part.data, part.bytes());
    exchange(operation, letters(results), {}, kCollectiveTag);
  });
}

void Group::scatter(Elements result, std::span<const Elements> parts, int64_t root) {
  run([&] {
    const auto operation = announce("scatter", result, root);
    meet(operation);
    if (rank_ != root) {
      const std::array<Letter, 1> mine = {{{root, result}}};
      return exchange(operation, mine, {}, kCollectiveTag);
    }
    copy_bytes(result.data, parts[static_cast<size_t>(root)].data, result.bytes());
    exchange(operation, {}, letters(parts), kCollectiveTag);
  });
}

void Group::reduce_scatter(Elements result, Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  run([&] {
    const auto operation = announce("reduce_scatter", result, argument_of(reduction));
    Sources sources = meet_small(operation, data);
    if (!sources.empty()) {
      for (const std::byte*& source : sources) source += rank_ * result.bytes();
      return comm::reduce(reduction, data.type, result.data, sources, result.count);
    }
    const int64_t most = kChunkBytes / size_ / data.width();
    for (int64_t i = 0; i < num_chunks(result.count, most); ++i) {
      const Chunk chunk = chunk_of(i, most, result.count);
      std::vector<Elements> parts;
      for (int64_t rank = 0; rank < size_; ++rank) {
        parts.push_back(data.part(rank * result.count + chunk.begin, chunk.count));
      }
      sources = exchange_parts(operation, parts);
      comm::reduce(reduction, data.type, result.part(chunk.begin, chunk.count).data, sources,
                   chunk.count);
    }
  });
}

void Group::all_to_all(std::span<const Elements> results, std::span<const Elements> parts) {
  run([&] {
    const auto operation = announce("all_to_all", {nullptr, parts[0].type, 0});
    meet(operation);
    const Elements &from = parts[static_cast<size_t>(rank_)],
                   &to = results[static_cast<size_t>(rank_)];
    LEVIN_CHECK(from.count == to.count, "comm.mismatch",
                "all_to_all: rank {} sends itself {} elements and expects {}", rank_, from.count,
                to.count);
    copy_bytes(to.data, from.data, from.bytes());
    exchange(operation, letters(results), letters(parts), kCollectiveTag);
  });
}

// What is sent goes ahead of the elements, so that the receiver can say what was wrong.
void Group::send(Elements data, int64_t to, int64_t tag) {
  run([&] {
    const auto operation = announce("message", data, tag);
    Announcement header = operation;
    const std::array<Letter, 1> ahead = {
        {{to, {reinterpret_cast<std::byte*>(&header), at::kByte, sizeof(header)}}}};
    exchange(operation, {}, ahead, kHeaderTag);
    const std::array<Letter, 1> body = {{{to, data}}};
    exchange(operation, {}, body, kDataTag);
  });
}

void Group::receive(Elements data, int64_t from, int64_t tag) {
  run([&] {
    const auto operation = announce("message", data, tag);
    Announcement header;
    const std::array<Letter, 1> ahead = {
        {{from, {reinterpret_cast<std::byte*>(&header), at::kByte, sizeof(header)}}}};
    exchange(operation, ahead, {}, kHeaderTag);
    check_message(header, from, operation, rank_);
    const std::array<Letter, 1> body = {{{from, data}}};
    exchange(operation, body, {}, kDataTag);
  });
}

}  // namespace levin::comm::mpi
