#pragma once
// CombinedLoader: the loader that data::combined() makes of several others. Not for users.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/comm/process_group.h"
#include "levin/data/loading/loader_interface.h"

namespace levin::detail {

/// When an epoch of combined loaders ends; see data::CombinedOptions.
enum class CombinedMode { kMinSize, kMaxSizeCycle, kMaxSize, kSequential };

/// One of the combined loaders.
struct CombinedPart {
  std::string name;
  std::shared_ptr<LoaderImpl> loader;
};

class CombinedLoader final : public LoaderImpl {
 public:
  CombinedLoader(std::vector<CombinedPart> parts, CombinedMode mode);

  std::optional<int64_t> size() const override;
  void set_slice(DataSlice slice, bool even) override;
  void set_pin_memory(bool pin_memory) override;
  void end_together(const std::function<bool(bool ended)>& any_ended) override;
  std::shared_ptr<LoaderImpl> copy() const override;
  std::shared_ptr<LoaderImpl> widened(int64_t times) const override;
  std::shared_ptr<LoaderImpl> in_order() const override;
  /// Returns the same combination of loaders whose data rank 0 reads for all ranks.
  std::shared_ptr<LoaderImpl> dispatched_parts(const comm::ProcessGroup& group) const;
  int64_t added() const override { return added_; }

  bool next(Batch& batch) override;
  bool at_end() override;
  int64_t padding() const override;
  int64_t epoch() const override { return epoch_; }
  int64_t batches_done() const override;
  void set_epoch(int64_t epoch) override;
  void mark() override;
  bool rewind() override;
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 private:
  /// A loader and what an epoch has done with it.
  struct Part {
    std::string name;
    std::shared_ptr<LoaderImpl> loader;
    int64_t cycles = 0;      ///< how often it began again in this epoch
    bool has_ended = false;  ///< it gave its last batch once in this epoch
  };
  /// The place at mark().
  struct Mark {
    int64_t batches = 0;
    size_t turn = 0;
    std::vector<std::pair<int64_t, bool>> ends = {};  ///< cycles and has_ended of each part
    std::vector<std::optional<State>> states = {};    ///< of parts that have begun again since
  };

  bool has_begun() const override { return batches_ > start_; }
  bool is_over(Part& part);
  void begin_again(size_t index);
  void take(Part& part, Batch& batch);
  void begin_epoch(int64_t epoch);
  /// A loader of the same mode, over what `change` makes of each part, at the same place.
  template <class Change>
  std::shared_ptr<LoaderImpl> changed(const Change& change) const;
  /// The number of batches, given how many each part has.
  template <class Count>
  std::optional<int64_t> count(const Count& batches_of) const;

  std::vector<Part> parts_;
  CombinedMode mode_;
  int64_t epoch_ = 0;
  int64_t batches_ = 0;  ///< batches handed out in this epoch
  int64_t start_ = 0;    ///< batches_ at the last jump
  int64_t added_ = 0;
  size_t turn_ = 0;  ///< the part that is read in kSequential
  Mark marked_;
};

/// Returns the merged state of all ranks' combined loaders; see DataLoader::merged_state.
State merged_parts(const std::vector<State>& ranks);

}  // namespace levin::detail
