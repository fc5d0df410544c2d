#pragma once
// StreamLoader: batches of an iterable data set; which shards this rank reads, where it stands in
// them, and what follows from it.
// Deals its shards out to lanes and has a StreamReader read them, which it starts anew after every
// jump.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "levin/data/dataset.h"
#include "levin/data/loading/loader_interface.h"
#include "levin/data/loading/streams/stream_lane.h"
#include "levin/data/loading/streams/stream_reader.h"

namespace levin::detail {

class StreamLoader final : public LoaderImpl {
 public:
  StreamLoader(IterableDatasetPtr dataset, DataLoaderOptions options);

  std::optional<int64_t> size() const override;
  void set_slice(DataSlice slice, bool even) override;
  void set_pin_memory(bool pin_memory) override;
  void end_together(const std::function<bool(bool ended)>& any_ended) override;
  std::shared_ptr<LoaderImpl> copy() const override;
  std::shared_ptr<LoaderImpl> widened(int64_t times) const override;
  std::shared_ptr<LoaderImpl> in_order() const override;

  bool next(Batch& batch) override;
  bool at_end() override;
  int64_t epoch() const override { return epoch_; }
  int64_t batches_done() const override { return batches_; }
  void set_epoch(int64_t epoch) override;
  void mark() override;
  bool rewind() override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  /// A batch that was read and not handed out yet, none at the epoch's end.
  struct Ahead {
    size_t lane = 0;
    std::optional<StreamReader::Read> read = {};
  };

  bool has_begun() const override { return batches_ > start_; }
  using ReadBeforePtr = std::shared_ptr<const ReadBefore>;

  StreamPart part_of(DataSlice slice, const ReadBeforePtr& read_before) const;
  std::vector<std::vector<int64_t>> lanes_of(DataSlice slice, bool some_read_before) const;
  std::vector<StreamLane> open_lanes() const;
  void forget_ahead();
  void jump(int64_t epoch);
  const Ahead& look_ahead();
  void check_same_shards(const State& state) const;
  void check_same_reading(const State& state) const;
  void load_merged(const State& state);
  /// Returns the batches that are left of an epoch with so much read before.
  std::optional<int64_t> batches_left(const ReadBeforePtr& read_before) const;

  IterableDatasetPtr dataset_;
  int64_t num_shards_;
  uint64_t seed_ = 0;
  DataSlice slice_;
  bool pin_memory_ = false;
  std::function<bool(bool)> any_ended_;

  // The place after the last batch that was handed out.
  int64_t epoch_ = 0;
  int64_t batches_ = 0;
  int64_t start_ = 0;                      ///< batches_ at the last jump
  size_t turn_ = 0;                        ///< lane of the next batch
  std::vector<StreamLane::Place> places_;  ///< place of each lane
  /// In this epoch, by another number of ranks; null: nothing.
  ReadBeforePtr read_before_;

  struct Mark {
    int64_t batches = 0;
    size_t turn = 0;
    std::vector<StreamLane::Place> places = {};
  };
  Mark marked_;

  bool reading_ = false;  ///< the reader was started since the last jump
  std::optional<Ahead> ahead_;
  StreamReader reader_;
};

}  // namespace levin::detail
