#pragma once
// StreamLane: some shards of an iterable data set, read one after another, as batches.
// A StreamLoader takes its batches from its lanes in turn; each lane is read by one thread at a
// time.
//
//   StreamLane lane(dataset, shards, part, context, {});
//   while (lane.read(batch)) { ... }                   // lane.place(): where to begin again

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "levin/data/dataset.h"
#include "levin/data/loading/streams/read_before.h"

namespace levin::detail {

/// The part of the shards that is read, and its order.
struct StreamPart {
  int64_t batch_size = 1;
  bool drop_last = false;
  int64_t shuffle_buffer_size = 0;  ///< 0: in the stream's own order
  /// Keeps the samples i of shard s with (s + i) % stride == offset.
  int64_t stride = 1;
  int64_t offset = 0;
  /// And of these the ones that were not read before; null: all.
  std::shared_ptr<const ReadBefore> read_before = {};
};

/// Samples that a part keeps of a shard of so many.
int64_t kept_of(const StreamPart& part, int64_t shard, int64_t size);

class StreamLane {
 public:
  struct Place {
    int64_t shard = 0;   ///< index in the lane's order; the number of shards at the lane's end
    int64_t sample = 0;  ///< read of it, kept or not
    auto operator<=>(const Place&) const = default;
  };

  StreamLane(IterableDatasetPtr dataset, std::vector<int64_t> shards, const StreamPart& part,
             const DrawContext& context, Place place);

  /// The next batch, or false at the lane's end. reuse: see Dataset::draw. Throws Error
  /// "data.loader.sample" that names shard and sample for what the stream threw, and
  /// "data.stream.size" for a shard of another size than was said.
  bool read(Batch& batch, Batch reuse);
  /// Returns the place behind the last batch.
  Place place() const { return place_; }

 private:
  bool next(data::Sample& sample, int64_t& number);
  std::span<const int64_t> shard_here() const;
  void open();
  void end_shard();
  [[noreturn]] void blame(const std::string& message) const;

  IterableDatasetPtr dataset_;
  std::vector<int64_t> shards_;
  StreamPart part_;
  DrawContext context_;
  Place place_;
  std::unique_ptr<SampleStream> stream_;  // stream of the shard at place_, when it is open
};

}  // namespace levin::detail
