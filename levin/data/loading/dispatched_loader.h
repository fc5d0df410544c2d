#pragma once
// DispatchedLoader: a loader whose data rank 0 alone reads and hands out to all ranks.
// Accelerate's DataLoaderDispatcher; made by the engine for dispatch_batches.
//
//   DataLoader loader = dispatched(loader_of_the_data, world, /*even=*/true);

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/data/loading/loader_impl.h"
#include "levin/data/loading/packed_batch.h"

namespace levin {

/// All ranks call it, and then next() and at_end() as often as each other. Rank 0 reads batches of
/// batch_size * world_size samples, the others never touch their data set; sample i of such a batch
/// goes to rank i % world_size, as distributed_sampler deals them out, so that every rank gets the
/// batches it would read itself. even (training): a short last batch is filled up with samples from
/// the epoch's start (Uneven::kPad); else no sample is repeated and the last batch of a rank may be
/// a sample shorter, or missing. A stream is read with open_shards = 1, and batches that it makes
/// itself are split over the ranks. What goes wrong in reading is thrown on every rank, after which
/// all stand where they stood before. Throws Error "data.loader.dispatch" for a batch without
/// samples, and for one of fewer than there are ranks in the middle of an evaluation.
LEVIN_API DataLoader dispatched(const DataLoader& loader, comm::ProcessGroup group, bool even);

namespace detail {

class DispatchedLoader final : public LoaderImpl {
 public:
  DispatchedLoader(const LoaderImpl& loader, comm::ProcessGroup group, bool even);

  std::optional<int64_t> size() const override { return size_; }
  /// The split is the dispatcher's own.
  void set_slice(DataSlice, bool) override {}
  void set_pin_memory(bool pin_memory) override;
  std::shared_ptr<LoaderImpl> copy() const override;
  std::shared_ptr<LoaderImpl> widened(int64_t times) const override;

  bool next(Batch& batch) override;
  bool at_end() override;
  int64_t epoch() const override { return epoch_; }
  int64_t padding() const override { return padding_; }
  int64_t batches_done() const override { return batches_; }
  void set_epoch(int64_t epoch) override;
  /// Rank 0's is the state of the loader of the data; of one read by index a run without dispatch
  /// takes it up too. All ranks load together, and rank 0's is what counts.
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  /// What rank 0 read for all.
  struct Global {
    Batch batch = {};  ///< empty at the epoch's end
    State after = {};  ///< the loader's, behind it
    int64_t padding = 0;
    std::exception_ptr error = {};
  };
  /// This rank's part of the next batch.
  struct Part {
    Batch batch = {};
    State after = {};
    int64_t padding = 0;  ///< of all ranks' parts
  };

  bool has_begun() const override { return batches_ > start_; }
  bool is_root() const { return group_.rank() == 0; }
  template <class Read>
  State told_by_root(const Read& read);
  void receive();
  State next_header(Global& next);
  Global read_global();
  void read_opening();
  int64_t fill_up(Batch& batch);
  void remember_opening(const Batch& batch);
  void jump(int64_t epoch, int64_t batches);

  comm::ProcessGroup group_;
  bool even_;
  bool pin_memory_ = false;
  std::optional<int64_t> size_;

  int64_t epoch_ = 0;
  int64_t batches_ = 0;
  int64_t start_ = 0;
  int64_t padding_ = 0;
  std::optional<Part> ahead_;  ///< received and not handed out yet
  bool ended_ = false;         ///< nothing more will be received in this epoch

  // Rank 0's.
  std::shared_ptr<LoaderImpl> loader_;
  std::optional<Global> read_;  ///< one global batch ahead, to know which is the last
  State stands_;                ///< the loader's, as of what was handed out
  Batch opening_;               ///< the epoch's first world_size - 1 samples
  int64_t opening_epoch_ = -1;
};

}  // namespace detail
}  // namespace levin
