#include "levin/comm/messages/collectives.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/comm/collectives/chunks.h"
#include "levin/comm/collectives/group_failure.h"

namespace levin::comm {
namespace {

// All announce with messages of one length; with other lengths different texts could not be
// compared.
constexpr int64_t kNoteBytes = 256;
constexpr int64_t kTinyBytes = kNoteBytes - static_cast<int64_t>(sizeof(Announcement));

constexpr int kCollectiveTag = 0;
constexpr int kHeaderTag = 1;
constexpr int kDataTag = 2;

/// MessageCollectives: collectives made of messages, over any transport. Sums are levin's own: in
/// rank order, which neither MPI nor gloo promises, and of all types.
class MessageCollectives final : public Collectives {
 public:
  MessageCollectives(std::unique_ptr<Transport> transport, const Algorithms& algorithms)
      : transport_(std::move(transport)),
        algorithms_(algorithms),
        rank_(transport_->rank()),
        size_(transport_->size()) {}

  void set_timeout(std::chrono::milliseconds timeout) override { transport_->set_timeout(timeout); }

  void meet(const Announcement& what) override {
    run([&] { compare(what); });
  }

  // While a chunk is reduced, the next one travels to the rank that reduces it, and the last one to
  // all.
  void all_reduce(Elements data, Reduction reduction) override {
    check_reducible(reduction, data.type);
    run([&] {
      const auto operation = announce("all_reduce", data, argument_of(reduction));
      const Sources small = compare_small(operation, data);
      if (!small.empty()) return comm::reduce(reduction, data.type, data.data, small, data.count);
      const int64_t most = algorithms_.chunk_bytes / data.width();
      const int64_t num = num_chunks(data.count, most);
      const auto shares_of = [&](int64_t i) {
        const Chunk chunk = chunk_of(i, most, data.count);
        return shares(data.part(chunk.begin, chunk.count));
      };
      std::vector<std::unique_ptr<Transport::Exchange>> given;
      std::optional<Parts> next = start_parts(operation, shares_of(0));
      for (int64_t i = 0; i < num; ++i) {
        Parts parts = *std::exchange(next, std::nullopt);
        if (i + 1 < num) next = start_parts(operation, shares_of(i + 1));
        finish_parts(parts, parts.mine, reduction);
        const std::vector<Elements> to_all(static_cast<size_t>(size_), parts.mine);
        given.push_back(
            transport_->start(operation, letters(shares_of(i)), letters(to_all), kCollectiveTag));
      }
      for (const auto& exchange : given) exchange->wait();
    });
  }

  int64_t bytes_to_join() const override { return int64_t{32} << 20; }

  // Each reduces its share and sends it to the root.
  void reduce(Elements data, int64_t root, Reduction reduction) override {
    check_reducible(reduction, data.type);
    run([&] {
      const auto operation = announce("reduce", data, argument_of(reduction, root));
      const Sources small = compare_small(operation, data);
      if (!small.empty()) {
        if (rank_ == root) comm::reduce(reduction, data.type, data.data, small, data.count);
        return;
      }
      const int64_t most = algorithms_.chunk_bytes / data.width();
      for (int64_t i = 0; i < num_chunks(data.count, most); ++i) {
        const Chunk chunk = chunk_of(i, most, data.count);
        const std::vector<Elements> all = shares(data.part(chunk.begin, chunk.count));
        Parts parts = start_parts(operation, all);
        // The result lies outside of the data: the data of ranks other than the root stay
        // unchanged.
        std::vector<std::byte> reduced(static_cast<size_t>(rank_ == root ? 0 : parts.mine.bytes()));
        Elements result = parts.mine;
        if (rank_ != root) result.data = reduced.data();
        finish_parts(parts, result, reduction);
        const std::array<Letter, 1> share = {{{root, result}}};
        if (rank_ == root) {
          transport_->exchange(operation, letters(all), {}, kCollectiveTag);
        } else {
          transport_->exchange(operation, {}, share, kCollectiveTag);
        }
      }
    });
  }

  void broadcast(Elements data, int64_t root) override {
    run([&] {
      const auto operation = announce("broadcast", data, root);
      const Sources tiny = compare(operation, data);
      if (!tiny.empty()) {
        return copy_bytes(data.data, tiny[static_cast<size_t>(root)],
                          rank_ == root ? 0 : data.bytes());
      }
      transport_->broadcast(operation, data, root, kCollectiveTag);
    });
  }

  void all_gather(Elements result, Elements part, Counts counts) override {
    run([&] {
      const auto operation = announce_parts("all_gather", part, counts);
      const std::vector<Elements> results = cut(result, counts);
      const Sources tiny = compare(operation, part, longest_of(counts));
      const Elements& own = results[static_cast<size_t>(rank_)];
      if (own.data != part.data) copy_bytes(own.data, part.data, part.bytes());
      if (tiny.empty()) {
        std::vector<int64_t> bytes;
        for (const Elements& theirs : results) bytes.push_back(theirs.bytes());
        return transport_->all_gather(operation, result.data, bytes, kCollectiveTag);
      }
      for (int64_t rank = 0; rank < size_; ++rank) {
        const auto i = static_cast<size_t>(rank);
        if (rank != rank_) copy_bytes(results[i].data, tiny[i], results[i].bytes());
      }
    });
  }

  void gather(std::span<const Elements> results, Elements part, int64_t root) override {
    run([&] {
      const auto operation = announce("gather", part, root);
      compare(operation);
      if (rank_ != root) {
        const std::array<Letter, 1> mine = {{{root, part}}};
        return transport_->exchange(operation, {}, mine, kCollectiveTag);
      }
      copy_bytes(results[static_cast<size_t>(root)].data, part.data, part.bytes());
      transport_->exchange(operation, letters(results), {}, kCollectiveTag);
    });
  }

  void scatter(Elements result, std::span<const Elements> parts, int64_t root) override {
    run([&] {
      const auto operation = announce("scatter", result, root);
      compare(operation);
      if (rank_ != root) {
        const std::array<Letter, 1> mine = {{{root, result}}};
        return transport_->exchange(operation, mine, {}, kCollectiveTag);
      }
      copy_bytes(result.data, parts[static_cast<size_t>(root)].data, result.bytes());
      transport_->exchange(operation, {}, letters(parts), kCollectiveTag);
    });
  }

  void reduce_scatter(Elements result, Elements data, Counts counts, Reduction reduction) override {
    check_reducible(reduction, data.type);
    run([&] {
      const auto operation = announce_parts("reduce_scatter", data, counts, argument_of(reduction));
      Sources sources = compare_small(operation, data);
      if (!sources.empty()) {
        const int64_t begin = begin_of(rank_, counts) * data.width();
        for (const std::byte*& source : sources) source += begin;
        return comm::reduce(reduction, data.type, result.data, sources, result.count);
      }
      const int64_t most = std::max<int64_t>(algorithms_.chunk_bytes / size_ / data.width(), 1);
      const int64_t num = num_chunks(longest_of(counts), most);
      const std::vector<Elements> wholes = cut(data, counts);
      const auto start = [&](int64_t i) {
        std::vector<Elements> parts;
        for (const Elements& whole : wholes) {
          const Chunk chunk = chunk_of(i, most, whole.count);
          parts.push_back(whole.part(chunk.begin, chunk.count));
        }
        return start_parts(operation, std::move(parts));
      };
      std::optional<Parts> next = start(0);
      for (int64_t i = 0; i < num; ++i) {
        Parts parts = *std::exchange(next, std::nullopt);
        if (i + 1 < num) next = start(i + 1);
        const Chunk chunk = chunk_of(i, most, result.count);
        finish_parts(parts, result.part(chunk.begin, chunk.count), reduction);
      }
    });
  }

  void all_to_all(std::span<const Elements> results, std::span<const Elements> parts) override {
    run([&] {
      const auto operation = announce("all_to_all", {nullptr, parts[0].type, 0});
      compare(operation);
      check_lengths(operation, results, parts);
      copy_bytes(results[static_cast<size_t>(rank_)].data, parts[static_cast<size_t>(rank_)].data,
                 parts[static_cast<size_t>(rank_)].bytes());
      transport_->exchange(operation, letters(results), letters(parts), kCollectiveTag);
    });
  }

  // A description goes ahead of the elements, so that the receiver can say what was wrong.
  void send(Elements data, int64_t to, int64_t tag) override {
    run([&] {
      const auto operation = announce("message", data, tag);
      Announcement header = operation;
      const std::array<Letter, 1> ahead = {
          {{to, {reinterpret_cast<std::byte*>(&header), at::kByte, sizeof(header)}}}};
      transport_->exchange(operation, {}, ahead, kHeaderTag);
      const std::array<Letter, 1> body = {{{to, data}}};
      transport_->exchange(operation, {}, body, kDataTag);
    });
  }

  void receive(Elements data, int64_t from, int64_t tag) override {
    run([&] {
      const auto operation = announce("message", data, tag);
      Announcement header;
      const std::array<Letter, 1> ahead = {
          {{from, {reinterpret_cast<std::byte*>(&header), at::kByte, sizeof(header)}}}};
      transport_->exchange(operation, ahead, {}, kHeaderTag);
      check_message(header, from, operation, rank_);
      const std::array<Letter, 1> body = {{{from, data}}};
      transport_->exchange(operation, body, {}, kDataTag);
    });
  }

 private:
  using Sources = std::vector<const std::byte*>;

  /// Runs an operation; what it throws closes the group.
  template <class Body>
  void run(const Body& body) {
    failure_.check();
    try {
      body();
    } catch (const std::exception& error) {
      failure_.note(error.what());
      transport_->abandon();
      throw;
    }
  }

  /// Compares the announcements of all ranks. If the longest tensor is small, all tensors come
  /// along: returns those of all ranks, else nothing.
  Sources compare(const Announcement& announcement, Elements mine, int64_t longest) {
    ++number_;
    scratch_.assign(static_cast<size_t>(size_ * kNoteBytes), std::byte{0});
    std::byte* note = scratch_.data() + rank_ * kNoteBytes;
    std::memcpy(note, &announcement, sizeof(announcement));
    const bool is_tiny = longest * mine.width() <= kTinyBytes;
    if (is_tiny) copy_bytes(note + sizeof(announcement), mine.data, mine.bytes());
    const std::vector<int64_t> counts(static_cast<size_t>(size_), kNoteBytes);
    transport_->all_gather(announcement, scratch_.data(), counts, kCollectiveTag);
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

  Sources compare(const Announcement& announcement, Elements mine = {}) {
    return compare(announcement, mine, mine.count);
  }

  Sources gather_small(const Announcement& operation, Elements mine) {
    const int64_t bytes = mine.bytes();
    scratch_.resize(static_cast<size_t>(bytes * size_));
    copy_bytes(scratch_.data() + rank_ * bytes, mine.data, bytes);
    const std::vector<int64_t> counts(static_cast<size_t>(size_), bytes);
    transport_->all_gather(operation, scratch_.data(), counts, kCollectiveTag);
    Sources sources;
    for (int64_t rank = 0; rank < size_; ++rank) sources.push_back(scratch_.data() + rank * bytes);
    return sources;
  }

  /// compare() and gather_small() where these pay, else nothing.
  Sources compare_small(const Announcement& announcement, Elements mine) {
    Sources sources = compare(announcement, mine);
    if (!sources.empty() || mine.bytes() * size_ > algorithms_.whole_up_to_bytes) return sources;
    return gather_small(announcement, mine);
  }

  /// The elements of all ranks for this rank's share, under way into memory that is used in turns.
  struct Parts {
    std::unique_ptr<Transport::Exchange> exchange;
    Elements mine;
    Sources sources;
  };

  /// parts[i] is what this rank has of rank i's share.
  Parts start_parts(const Announcement& operation, std::vector<Elements> parts) {
    std::vector<std::byte>& memory = turns_[turn_++ % turns_.size()];
    const Elements mine = parts[static_cast<size_t>(rank_)];
    const int64_t stride = rounded_up(mine.bytes(), 64);
    memory.resize(static_cast<size_t>(stride * size_));
    std::vector<Elements> theirs;
    Sources sources;
    for (int64_t rank = 0; rank < size_; ++rank) {
      theirs.push_back({memory.data() + rank * stride, mine.type, mine.count});
      sources.push_back(rank == rank_ ? mine.data : theirs.back().data);
    }
    return {transport_->start(operation, letters(theirs), letters(parts), kCollectiveTag), mine,
            std::move(sources)};
  }

  void finish_parts(Parts& parts, Elements result, Reduction reduction) {
    parts.exchange->wait();
    comm::reduce(reduction, result.type, result.data, parts.sources, result.count);
  }

  // They may differ from pair to pair: all tell all what they send, and all see the same mistake.
  void check_lengths(const Announcement& operation, std::span<const Elements> results,
                     std::span<const Elements> parts) {
    std::vector<int64_t> lengths(static_cast<size_t>(2 * size_ * size_));
    int64_t* mine = lengths.data() + 2 * size_ * rank_;
    for (size_t i = 0; i < parts.size(); ++i) {
      mine[2 * i] = parts[i].count;
      mine[2 * i + 1] = results[i].count;
    }
    const std::vector<int64_t> bytes(static_cast<size_t>(size_),
                                     2 * size_ * static_cast<int64_t>(sizeof(int64_t)));
    transport_->all_gather(operation, reinterpret_cast<std::byte*>(lengths.data()), bytes,
                           kCollectiveTag);
    for (int64_t from = 0; from < size_; ++from) {
      for (int64_t to = 0; to < size_; ++to) {
        const int64_t sent = lengths[static_cast<size_t>(2 * (size_ * from + to))];
        const int64_t wanted = lengths[static_cast<size_t>(2 * (size_ * to + from) + 1)];
        LEVIN_CHECK(sent == wanted, "comm.mismatch",
                    "all_to_all: rank {} sends {} elements and rank {} expects {}", from, sent, to,
                    wanted);
      }
    }
  }

  // To the next rank first: not all to one at a time.
  std::vector<Letter> letters(std::span<const Elements> elements) const {
    std::vector<Letter> all;
    for (int64_t i = 1; i < size_; ++i) {
      const int64_t rank = (rank_ + i) % size_;
      all.push_back({rank, elements[static_cast<size_t>(rank)]});
    }
    return all;
  }

  /// The parts of a tensor that each rank reduces.
  std::vector<Elements> shares(Elements elements) const {
    std::vector<Elements> all;
    for (int64_t rank = 0; rank < size_; ++rank) {
      const Chunk share = share_of(rank, size_, elements.count);
      all.push_back(elements.part(share.begin, share.count));
    }
    return all;
  }

  std::unique_ptr<Transport> transport_;
  Algorithms algorithms_;
  int64_t rank_;
  int64_t size_;
  int64_t number_ = 0;  ///< collectives begun
  std::vector<std::byte> scratch_;
  std::array<std::vector<std::byte>, 2> turns_;
  size_t turn_ = 0;
  GroupFailure failure_;
};

}  // namespace

std::unique_ptr<Collectives> make_message_collectives(std::unique_ptr<Transport> transport,
                                                      Carrier carrier) {
  const Algorithms algorithms = algorithms_of(carrier, transport->size());
  return std::make_unique<MessageCollectives>(std::move(transport), algorithms);
}

}  // namespace levin::comm
