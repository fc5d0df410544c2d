// Group's collectives, by rounds through staging buffers or from where the tensors lie.

#include <algorithm>
#include <cstring>

#include "levin/base/check.h"
#include "levin/comm/collectives/chunks.h"
#include "levin/comm/shm/group.h"

namespace levin::comm::shm {
namespace {

// Below this a copy costs less than asking where everybody's tensors lie.
constexpr int64_t kSmallBytes = 64 << 10;

std::vector<const std::byte*> moved(std::vector<const std::byte*> places, int64_t bytes) {
  for (const std::byte*& place : places) place += bytes;
  return places;
}

}  // namespace

void Group::all_reduce(Elements data, Reduction reduction) {
  check_reducible(reduction, data.type);
  if (data.bytes() > kSmallBytes) {
    const auto sources =
        meet_in_place(announce("all_reduce", data, argument_of(reduction), place_of(data)));
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
    comm::reduce(reduction, data.type, data.data + begin, moved(sources, begin), count);
    part("all_reduce, second half");
    for (int64_t i = 1; i < size_; ++i) {
      const int64_t rank = (rank_ + i) % size_;  // not all from one at a time
      const auto [from, length] = share(rank);
      copy_bytes(data.data + from, sources[static_cast<size_t>(rank)] + from,
                 length * data.width());
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

void Group::all_gather(Elements result, Elements mine, Counts counts) {
  const std::vector<Elements> results = cut(result, counts);
  const int64_t longest = longest_of(counts);
  Sources sources;
  if (longest * mine.width() > kSmallBytes) {
    sources = meet_in_place(announce_parts("all_gather", mine, counts, 0, place_of(mine)));
  }
  if (sources.empty()) {
    return gather_to(results, mine, longest, announce_parts("all_gather", mine, counts));
  }
  run([&] {
    for (int64_t i = 0; i < size_; ++i) {
      const auto rank = static_cast<size_t>((rank_ + i) % size_);
      const Elements& to = results[rank];
      if (sources[rank] != to.data) copy_bytes(to.data, sources[rank], to.bytes());
    }
    part("all_gather, end");
  });
}

void Group::gather(std::span<const Elements> results, Elements mine, int64_t root) {
  const auto none = std::span<const Elements>();
  gather_to(rank_ == root ? results : none, mine, mine.count, announce("gather", mine, root));
}

void Group::gather_to(std::span<const Elements> results, Elements mine, int64_t longest,
                      const Announcement& announcement) {
  const int64_t most_elements = most(mine);
  exchange(
      announcement, num_chunks(longest, most_elements),
      [&](int64_t round, std::byte* buffer) {
        const auto [begin, count] = chunk_of(round, most_elements, mine.count);
        copy_bytes(buffer, mine.data + begin * mine.width(), count * mine.width());
      },
      [&](int64_t round, const Buffers& theirs) {
        for (int64_t rank = 0; rank < std::ssize(results); ++rank) {
          const Elements& whole = results[static_cast<size_t>(rank)];
          const auto [begin, count] = chunk_of(round, most_elements, whole.count);
          const Elements to = whole.part(begin, count);
          const std::byte* from = rank == rank_ ? mine.part(begin, count).data : theirs[rank];
          if (to.data != from) copy_bytes(to.data, from, to.bytes());
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

void Group::reduce_scatter(Elements result, Elements data, Counts counts, Reduction reduction) {
  check_reducible(reduction, data.type);
  const int64_t longest = longest_of(counts);
  const auto announcement = [&](int64_t place) {
    return announce_parts("reduce_scatter", data, counts, argument_of(reduction), place);
  };
  if (longest * data.width() > kSmallBytes) {
    const Sources lying = meet_in_place(announcement(place_of(data)));
    if (!lying.empty()) {
      return run([&] {
        comm::reduce(reduction, data.type, result.data,
                     moved(lying, begin_of(rank_, counts) * data.width()), result.count);
        part("reduce_scatter, end");
      });
    }
  }
  const std::vector<Elements> parts = cut(data, counts);
  std::vector<const std::byte*> sources;
  const int64_t most_elements = most(data, size_);
  const auto place = [&](int64_t rank) { return rank * most_elements * data.width(); };
  exchange(
      announcement(0), num_chunks(longest, most_elements),
      [&](int64_t round, std::byte* mine) {
        for (int64_t rank = 0; rank < size_; ++rank) {
          const Elements& whole = parts[static_cast<size_t>(rank)];
          const auto [begin, count] = chunk_of(round, most_elements, whole.count);
          copy_bytes(mine + place(rank), whole.part(begin, count).data, count * whole.width());
        }
      },
      [&](int64_t round, const Buffers& theirs) {
        const auto [begin, count] = chunk_of(round, most_elements, result.count);
        sources.clear();
        for (int64_t rank = 0; rank < size_; ++rank) {
          sources.push_back(theirs[rank] + place(rank_));
        }
        comm::reduce(reduction, data.type, result.part(begin, count).data, sources, count);
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

// Each pair of ranks may exchange another length: all ranks announce theirs and compare.
int64_t Group::longest_part(std::span<const Elements> results, std::span<const Elements> parts) {
  std::vector<int64_t> sent(static_cast<size_t>(size_ * size_));
  std::vector<int64_t> mine;
  for (const Elements& part : parts) mine.push_back(part.count);
  const auto bytes_of = [](std::vector<int64_t>& counts) {
    return Elements{reinterpret_cast<std::byte*>(counts.data()), at::kLong, std::ssize(counts)};
  };
  all_gather(bytes_of(sent), bytes_of(mine), equal_counts(size_, size_));
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

}  // namespace levin::comm::shm
