#include "levin/comm/mpi/transport.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/awake.h"
#include "levin/base/check.h"
#include "levin/base/spin.h"
#include "levin/comm/collectives/chunks.h"

namespace levin::comm::mpi {
namespace {

constexpr int64_t kMostBytes = 1 << 30;  // of one message: MPI counts in int
// A core that is given away during a transfer comes back a time slice later.
constexpr std::chrono::microseconds kTransfer(1000);
// A rank that waits for longer than a slow message takes leaves the core to others.
constexpr std::chrono::milliseconds kPatience(50);
constexpr std::chrono::microseconds kNap(100);

constexpr int kStartTag = 32000;  // in the world, where others may send as well

/// FNV-1a: other ranks, or in another order, give another number.
int64_t fingerprint(std::span<const int> ranks) {
  uint64_t hash = 14695981039346656037U;
  for (const int rank : ranks) hash = (hash ^ static_cast<uint64_t>(rank)) * 1099511628211U;
  return static_cast<int64_t>(hash);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(Library& library, std::span<const int> ranks, std::chrono::milliseconds timeout)
      : library_(library), timeout_(timeout), rank_(library.place.rank), size_(std::ssize(ranks)) {
    const auto operation = announce("the start of a group", "", size_, fingerprint(ranks));
    group_ = ask(operation, [](Module& mpi) { return mpi.world(); });
    gather_members(operation, ranks);
    group_ = ask(operation, [&](Module& mpi) { return mpi.make_group(ranks); });
    rank_ = std::ranges::find(ranks, library.place.rank) - ranks.begin();
  }

  ~MpiTransport() override {
    if (is_abandoned_) return;
    try {
      ask(announce("the end of a group", "", size_), [&](Module& mpi) { mpi.free_group(group_); });
    } catch (const std::exception&) {
      library_.module.fail();
    }
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  std::unique_ptr<Exchange> start(const Announcement& operation, std::span<const Letter> receives,
                                  std::span<const Letter> sends, int tag) override {
    auto exchange = std::make_unique<MpiExchange>(*this, operation);
    for (const Letter& letter : receives) {
      if (letter.rank == rank_) continue;
      exchange->add(letter, [&](Module& mpi, std::byte* data, int bytes) {
        return mpi.receive(data, bytes, static_cast<int>(letter.rank), tag, group_);
      });
    }
    for (const Letter& letter : sends) {
      if (letter.rank == rank_) continue;
      exchange->add(letter, [&](Module& mpi, const std::byte* data, int bytes) {
        return mpi.send(data, bytes, static_cast<int>(letter.rank), tag, group_);
      });
    }
    return exchange;
  }

  /// The communicator is kept: another one in its place would receive what was left in it.
  void abandon() override { is_abandoned_ = true; }

  void all_gather(const Announcement& operation, std::byte* data, std::span<const int64_t> counts,
                  int tag) override {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (total > kMostBytes) return Transport::all_gather(operation, data, counts, tag);
    const std::vector<int> lengths(counts.begin(), counts.end());
    std::vector<int> places = {0};
    for (const int length : lengths) places.push_back(places.back() + length);
    Request request = ask(operation, [&](Module& mpi) {
      return mpi.all_gather(data, lengths.data(), places.data(), group_);
    });
    wait(operation, {&request, 1});
  }

  void broadcast(const Announcement& operation, Elements data, int64_t root, int) override {
    for (int64_t i = 0; i < num_chunks(data.bytes(), kMostBytes); ++i) {
      const Chunk piece = chunk_of(i, kMostBytes, data.bytes());
      Request request = ask(operation, [&](Module& mpi) {
        return mpi.broadcast(data.data + piece.begin, static_cast<int>(piece.count),
                             static_cast<int>(root), group_);
      });
      wait(operation, {&request, 1});
    }
  }

 private:
  class MpiExchange final : public Exchange {
   public:
    MpiExchange(MpiTransport& transport, const Announcement& operation)
        : transport_(transport), operation_(operation) {}

    template <class Begin>
    void add(const Letter& letter, const Begin& begin) {
      const int64_t bytes = letter.elements.bytes();
      // It sends at least one message, so that the other side learns of a length that it does not
      // expect.
      for (int64_t i = 0; i < std::max<int64_t>(num_chunks(bytes, kMostBytes), 1); ++i) {
        const Chunk piece = chunk_of(i, kMostBytes, bytes);
        requests_.push_back(transport_.ask(operation_, [&](Module& mpi) {
          return begin(mpi, letter.elements.data + piece.begin, static_cast<int>(piece.count));
        }));
        if (requests_.back().receives) {
          wanted_.emplace_back(letter.rank, static_cast<int>(piece.count));
        }
      }
    }

    void wait() override {
      transport_.wait(operation_, requests_);
      for (size_t i = 0; i < wanted_.size(); ++i) {
        const auto& [rank, bytes] = wanted_[i];
        const int came = requests_[i].bytes;
        LEVIN_CHECK(came == bytes, "comm.mismatch",
                    "{}: rank {} sent {} bytes and rank {} expects {}", operation_.text(), rank,
                    came == Request::kTooLong ? "more" : std::to_string(came), transport_.rank_,
                    bytes);
      }
    }

   private:
    MpiTransport& transport_;
    Announcement operation_;
    std::vector<Request> requests_;                // the receives first
    std::vector<std::pair<int64_t, int>> wanted_;  // rank and bytes of each receive
  };

  // Returns when all ranks of a group have come to make it. The first hears of all, then all hear of the first; also when their lists differ.
  void gather_members(const Announcement& operation, std::span<const int> ranks) {
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
                  "got a group of {} ranks here but of {} ranks, other ranks or another order on "
                  "another rank; pass the same list of ranks on all of them",
                  mine.count, note.count);
    }
  }

  /// Makes one call at a time, whichever queue it comes from.
  template <class Call>
  std::invoke_result_t<Call, Module&> ask(const Announcement& operation, const Call& call) {
    const std::lock_guard lock(library_.mutex);
    try {
      return call(library_.module);
    } catch (const std::runtime_error& error) {
      abandon();
      library_.module.fail();
      LEVIN_FAIL("comm.mpi", "{}: {}", operation.text(), error.what());
    }
  }

  void wait(const Announcement& operation, std::span<Request> requests) {
    const auto done = [&] {
      return ask(operation, [&](Module& mpi) { return mpi.test(requests); });
    };
    if (levin::detail::spin_until(done)) return;
    levin::detail::AwakeTime awake;
    const std::chrono::milliseconds timeout = timeout_;
    while (!done()) {
      const auto waited = awake.look();
      if (waited > timeout) {
        abandon();
        ask(operation, [&](Module& mpi) { mpi.fail(); });
        LEVIN_FAIL("comm.timeout",
                   "waited {} s in {} for other ranks; check what each rank is doing, or raise the "
                   "timeout",
                   std::chrono::duration<double>(timeout).count(), operation.text());
      }
      if (waited > kPatience) {
        std::this_thread::sleep_for(kNap);
      } else if (!library_.has_own_core || waited > kTransfer) {
        std::this_thread::yield();
      }
    }
  }

  Library& library_;
  std::atomic<std::chrono::milliseconds> timeout_;
  Handle group_ = 0;
  int64_t rank_ = 0;
  int64_t size_ = 1;
  std::atomic<bool> is_abandoned_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(Library& library, std::span<const int> ranks,
                                              std::chrono::milliseconds timeout) {
  return std::make_unique<MpiTransport>(library, ranks, timeout);
}

}  // namespace levin::comm::mpi
