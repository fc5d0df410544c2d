#include "levin/comm/shm/group.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>

#include "levin/base/check.h"
#include "levin/comm/chunks.h"

namespace levin::comm::shm {
namespace {

constexpr int64_t kPage = 4096;
// A place is the number of an arena, counted from 1, and an offset in each rank's part of it.
constexpr int kOffsetBits = 40;
// Below this a copy costs less than asking where everybody's tensors lie.
constexpr int64_t kSmallBytes = 64 << 10;
// What is read from another process at a time: it stays in a core's cache until it is summed.
constexpr int64_t kViewBytes = 128 << 10;

}  // namespace

/// One call of allocate(): the same number of bytes of every rank.
struct Group::Arena {
  Segment segment;
  int64_t bytes = 0;  ///< of a rank

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
  links_.watch([this](int64_t gone) { rounds_.mark_gone(gone); });
  try {
    if (options_.read_peers && size_ > 1) meet_peers();
  } catch (const std::exception&) {
    links_.stop_watching();
    throw;
  }
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
  for (size_t i = 0; i < arenas_.size(); ++i) {
    const std::byte* mine = arenas_[i]->of_rank(rank_);
    const bool inside =
        std::greater_equal<>()(elements.data, mine) &&
        std::less_equal<>()(elements.data + elements.bytes(), mine + arenas_[i]->bytes);
    if (inside) return static_cast<int64_t>(i + 1) << kOffsetBits | (elements.data - mine);
  }
  return 0;
}

// All or none: every rank must take the same way.
void Group::meet_peers() {
  std::vector<int64_t> processes;
  int64_t can_read_all = 1;
  turn(
      2,
      [&](int64_t round, std::byte* mine) {
        const PeerCard card = own_.card();
        if (round == 0) std::memcpy(mine, &card, sizeof(card));
        if (round == 1) std::memcpy(mine, &can_read_all, sizeof(can_read_all));
      },
      [&](int64_t round, const Buffers& theirs) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          PeerCard card;
          int64_t can_read = 1;
          if (round == 0) {
            std::memcpy(&card, theirs[rank], sizeof(card));
            processes.push_back(card.process);
            can_read_all &= PeerMemory::can_read(card) ? 1 : 0;
          } else {
            std::memcpy(&can_read, theirs[rank], sizeof(can_read));
            can_read_all &= can_read;
          }
        }
      });
  if (can_read_all == 0) return;
  processes_ = std::move(processes);
  buffers_.resize(static_cast<size_t>(size_));
}

void Group::Source::copy(int64_t offset, std::byte* to, int64_t bytes) const {
  if (here == nullptr)
    return PeerMemory::read(process, address + static_cast<uint64_t>(offset), to, bytes);
  if (here + offset != to) copy_bytes(to, here + offset, bytes);
}

const std::byte* Group::Source::view(int64_t offset, int64_t bytes,
                                     std::vector<std::byte>& buffer) const {
  if (here != nullptr) return here + offset;
  buffer.resize(kViewBytes);
  copy(offset, buffer.data(), bytes);
  return buffer.data();
}

Group::Sources Group::meet(const Announcement& announcement, Elements mine) {
  Sources all;
  exchange(
      announcement, 1,
      [&](int64_t, std::byte* buffer) {
        const auto address = reinterpret_cast<uint64_t>(mine.data);
        std::memcpy(buffer, &address, sizeof(address));
      },
      [&](int64_t, const Buffers& theirs) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          const int64_t place = rounds_.announced(rank).place;
          Source& source = all.emplace_back();
          if (place != 0) {
            const Arena& arena = *arenas_[static_cast<size_t>((place >> kOffsetBits) - 1)];
            source.here = arena.of_rank(rank) + (place & ((int64_t{1} << kOffsetBits) - 1));
          } else if (processes_.empty()) {
            return all.clear();
          } else if (rank == rank_) {
            source.here = mine.data;
          } else {
            source.process = processes_[static_cast<size_t>(rank)];
            std::memcpy(&source.address, theirs[rank], sizeof(source.address));
          }
        }
      });
  return all;
}

void Group::reduce_from(const Sources& sources, int64_t offset, Elements result,
                        Reduction reduction) {
  const bool all_here = std::ranges::all_of(sources, [](const Source& s) { return s.here; });
  const int64_t most_elements = all_here ? result.count : kViewBytes / result.width();
  std::vector<const std::byte*> views(sources.size());
  for (int64_t i = 0; i < num_chunks(result.count, most_elements); ++i) {
    const Chunk chunk = chunk_of(i, most_elements, result.count);
    const Elements part = result.part(chunk.begin, chunk.count);
    for (size_t rank = 0; rank < sources.size(); ++rank) {
      std::vector<std::byte> none;
      views[rank] = sources[rank].view(offset + chunk.begin * result.width(), part.bytes(),
                                       all_here ? none : buffers_[rank]);
    }
    comm::reduce(reduction, part.type, part.data, views, part.count);
  }
}

void Group::part(std::string_view name) {
  exchange(announce(name, "", 0), 1, [](int64_t, std::byte*) {}, [](int64_t, const Buffers&) {});
}

void Group::barrier() { part("barrier"); }

void Group::all_reduce(Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  if (data.bytes() > kSmallBytes) {
    const auto sources =
        meet(announce("all_reduce", data, argument_of(reduction), place_of(data)), data);
    if (!sources.empty()) return all_reduce_in_place(data, sources, reduction);
    // With two ranks the parts save nothing and cost a second round a chunk.
    if (size_ > 2) return all_reduce_by_parts(data, reduction);
  }
  all_reduce_by_all(data, reduction);
}

// Each reduces its share, where all can read it, and takes the other shares from who reduced them.
void Group::all_reduce_in_place(Elements data, const Sources& sources, Reduction reduction) {
  run([&] {
    const auto share = [&](int64_t rank) {
      const Chunk elements = share_of(rank, size_, data.count);
      return Chunk{elements.begin * data.width(), elements.count};
    };
    const auto [begin, count] = share(rank_);
    reduce_from(sources, begin, {data.data + begin, data.type, count}, reduction);
    part("all_reduce, second half");
    for (int64_t i = 1; i < size_; ++i) {
      const int64_t rank = (rank_ + i) % size_;  // not all from one at a time
      const auto [from, length] = share(rank);
      sources[static_cast<size_t>(rank)].copy(from, data.data + from, length * data.width());
    }
    part("all_reduce, end");
  });
}

void Group::all_reduce_by_all(Elements data, Reduction reduction) {
  const int64_t most_elements = most(data);
  std::vector<const std::byte*> sources(static_cast<size_t>(size_));
  exchange(
      announce("all_reduce", data, argument_of(reduction)), num_chunks(data.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        copy_bytes(mine, data.data + begin * data.width(), count * data.width());
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        for (int64_t rank = 0; rank < size_; ++rank) {
          sources[static_cast<size_t>(rank)] = theirs[rank];
        }
        comm::reduce(reduction, data.type, data.data + begin * data.width(), sources, count);
      });
}

// Two rounds a chunk: all give theirs and each reduces its share; then the shares go round.
void Group::all_reduce_by_parts(Elements data, Reduction reduction) {
  const int64_t most_elements = most(data);
  std::vector<std::byte> reduced(static_cast<size_t>(options_.chunk_bytes));
  exchange(
      announce("all_reduce", data, argument_of(reduction)),
      2 * num_chunks(data.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round / 2, most_elements, data.count);
        if (round % 2 == 0) {
          copy_bytes(mine, data.data + begin * data.width(), count * data.width());
        } else {
          copy_bytes(mine, reduced.data(), share_of(rank_, size_, count).count * data.width());
        }
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round / 2, most_elements, data.count);
        if (round % 2 == 0) {
          const Chunk share = share_of(rank_, size_, count);
          std::vector<const std::byte*> sources;
          for (int64_t rank = 0; rank < size_; ++rank) {
            sources.push_back(theirs[rank] + share.begin * data.width());
          }
          comm::reduce(reduction, data.type, reduced.data(), sources, share.count);
        } else {
          for (int64_t rank = 0; rank < size_; ++rank) {
            const Chunk share = share_of(rank, size_, count);
            copy_bytes(data.data + (begin + share.begin) * data.width(), theirs[rank],
                       share.count * data.width());
          }
        }
      });
}

void Group::reduce(Elements data, int64_t root, Reduction reduction) {
  check_reducible(reduction, data.type);
  const int64_t most_elements = most(data);
  exchange(
      announce("reduce", data, argument_of(reduction, root)), num_chunks(data.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        copy_bytes(mine, data.data + begin * data.width(), count * data.width());
      },
      [&](int64_t round, const Buffers& theirs) {
        if (rank_ != root) return;
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        std::vector<const std::byte*> sources;
        for (int64_t rank = 0; rank < size_; ++rank) sources.push_back(theirs[rank]);
        comm::reduce(reduction, data.type, data.data + begin * data.width(), sources, count);
      });
}

void Group::broadcast(Elements data, int64_t root) {
  const int64_t most_elements = most(data);
  exchange(
      announce("broadcast", data, root), num_chunks(data.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        if (rank_ == root) copy_bytes(mine, data.data + begin * data.width(), count * data.width());
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, data.count);
        if (rank_ != root)
          copy_bytes(data.data + begin * data.width(), theirs[root], count * data.width());
      });
}

void Group::all_gather(Elements result, Elements part_of_mine) {
  const Elements& mine = part_of_mine;
  const auto place = [&](int64_t rank) { return result.data + rank * mine.bytes(); };
  Sources sources;
  if (mine.bytes() > kSmallBytes) {
    sources = meet(announce("all_gather", mine, 0, place_of(mine)), mine);
  }
  if (!sources.empty()) {
    return run([&] {
      for (int64_t i = 0; i < size_; ++i) {
        const int64_t rank = (rank_ + i) % size_;
        sources[static_cast<size_t>(rank)].copy(0, place(rank), mine.bytes());
      }
      part("all_gather, end");
    });
  }
  std::vector<Elements> results;
  for (int64_t rank = 0; rank < size_; ++rank) {
    results.push_back({place(rank), mine.type, mine.count});
  }
  gather_to(results, mine, announce("all_gather", mine));
}

void Group::all_gather(std::span<const Elements> results, Elements mine) {
  gather_to(results, mine, announce("all_gather", mine));
}

void Group::gather(std::span<const Elements> results, Elements mine, int64_t root) {
  const auto none = std::span<const Elements>();
  gather_to(rank_ == root ? results : none, mine, announce("gather", mine, root));
}

void Group::gather_to(std::span<const Elements> results, Elements mine,
                      const Announcement& announcement) {
  const int64_t most_elements = most(mine);
  exchange(
      announcement, num_chunks(mine.count, most_elements),
      [&](int64_t round, std::byte* buffer) {
        const auto [begin, count] = chunk_of(round, most_elements, mine.count);
        copy_bytes(buffer, mine.data + begin * mine.width(), count * mine.width());
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, mine.count);
        for (int64_t rank = 0; rank < std::ssize(results); ++rank) {
          std::byte* to = results[static_cast<size_t>(rank)].data + begin * mine.width();
          const std::byte* from = rank == rank_ ? mine.data + begin * mine.width() : theirs[rank];
          if (to != from) copy_bytes(to, from, count * mine.width());
        }
      });
}

void Group::scatter(Elements result, std::span<const Elements> parts, int64_t root) {
  const int64_t most_elements = most(result, size_);
  const auto place = [&](int64_t rank) { return rank * most_elements * result.width(); };
  exchange(
      announce("scatter", result, root), num_chunks(result.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round, most_elements, result.count);
        for (int64_t rank = 0; rank_ == root && rank < size_; ++rank) {
          copy_bytes(mine + place(rank),
                     parts[static_cast<size_t>(rank)].data + begin * result.width(),
                     count * result.width());
        }
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, result.count);
        copy_bytes(result.data + begin * result.width(), theirs[root] + place(rank_),
                   count * result.width());
      });
}

void Group::reduce_scatter(Elements result, Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  if (result.bytes() > kSmallBytes) {
    const Sources lying =
        meet(announce("reduce_scatter", result, argument_of(reduction), place_of(data)), data);
    if (!lying.empty()) {
      return run([&] {
        reduce_from(lying, rank_ * result.bytes(), result, reduction);
        part("reduce_scatter, end");
      });
    }
  }
  std::vector<const std::byte*> sources;
  const int64_t most_elements = most(result, size_);
  const auto place = [&](int64_t rank) { return rank * most_elements * result.width(); };
  exchange(
      announce("reduce_scatter", result, argument_of(reduction)),
      num_chunks(result.count, most_elements),
      [&](int64_t round, std::byte* mine) {
        const auto [begin, count] = chunk_of(round, most_elements, result.count);
        for (int64_t rank = 0; rank < size_; ++rank) {
          const int64_t from = (rank * result.count + begin) * data.width();
          copy_bytes(mine + place(rank), data.data + from, count * data.width());
        }
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, result.count);
        sources.clear();
        for (int64_t rank = 0; rank < size_; ++rank) {
          sources.push_back(theirs[rank] + place(rank_));
        }
        comm::reduce(reduction, data.type, result.data + begin * data.width(), sources, count);
      });
}

void Group::all_to_all(std::span<const Elements> results, std::span<const Elements> parts) {
  const Elements any = {nullptr, parts[0].type, 0};
  const int64_t longest = longest_part(results, parts);
  const int64_t most_elements = most(any, size_);
  const auto place = [&](int64_t rank) { return rank * most_elements * any.width(); };
  exchange(
      announce("all_to_all", {nullptr, any.type, longest}), num_chunks(longest, most_elements),
      [&](int64_t round, std::byte* mine) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          const Elements& part = parts[static_cast<size_t>(rank)];
          const auto [begin, count] = chunk_of(round, most_elements, part.count);
          copy_bytes(mine + place(rank), part.data + begin * any.width(), count * any.width());
        }
      },
      [&](int64_t round, const Buffers& theirs) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          const Elements& result = results[static_cast<size_t>(rank)];
          const auto [begin, count] = chunk_of(round, most_elements, result.count);
          copy_bytes(result.data + begin * any.width(), theirs[rank] + place(rank_),
                     count * any.width());
        }
      });
}

// What ranks send each other may differ in length: all tell all, and check what they were told.
int64_t Group::longest_part(std::span<const Elements> results, std::span<const Elements> parts) {
  std::vector<int64_t> sent(static_cast<size_t>(size_ * size_));
  std::vector<int64_t> mine;
  for (const Elements& part : parts) mine.push_back(part.count);
  const auto bytes_of = [](std::vector<int64_t>& counts) {
    return Elements{reinterpret_cast<std::byte*>(counts.data()), at::kLong, std::ssize(counts)};
  };
  all_gather(bytes_of(sent), bytes_of(mine));
  for (int64_t rank = 0; rank < size_; ++rank) {
    const int64_t comes = sent[static_cast<size_t>(rank * size_ + rank_)];
    const int64_t wanted = results[static_cast<size_t>(rank)].count;
    if (comes == wanted) continue;
    close("all_to_all of different lengths");
    LEVIN_FAIL("comm.mismatch", "all_to_all: rank {} sends {} elements and rank {} expects {}",
               rank, comes, rank_, wanted);
  }
  return *std::ranges::max_element(sent);
}

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
  exchange(
      announce("allocate", "Byte", bytes), 1, [](int64_t, std::byte*) {},
      [](int64_t, const Buffers&) {});
  auto arena = std::make_shared<Arena>();
  arena->segment = links_.share(static_cast<size_t>(part * size_),
                                std::chrono::steady_clock::now() + options_.timeout);
  arena->bytes = part;
  arenas_.push_back(arena);
  std::byte* mine = arena->of_rank(rank_);
  // Its pages go back to the system with the last tensor; the addresses stay until the group ends.
  return {mine, [arena, part](std::byte* data) {
            ::madvise(data, static_cast<size_t>(part), MADV_REMOVE);
          }};
}

}  // namespace levin::comm::shm
