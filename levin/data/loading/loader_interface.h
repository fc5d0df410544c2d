#pragma once
// LoaderImpl: the interface behind a DataLoader. Its implementations read a data set by index
// (make_map_loader), a stream (StreamLoader), or what rank 0 reads for all (DispatchedLoader).
// Not for users.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "levin/data/loader.h"

namespace levin::detail {

/// Throws the errors of DataLoader's constructors.
DataLoaderOptions checked(DataLoaderOptions options);
void check_pin_memory(bool pin_memory);

class LoaderImpl {
 public:
  explicit LoaderImpl(DataLoaderOptions options) : options_(std::move(options)) {}
  virtual ~LoaderImpl();
  LoaderImpl(const LoaderImpl&) = delete;
  LoaderImpl& operator=(const LoaderImpl&) = delete;

  const DataLoaderOptions& options() const { return options_; }
  virtual const DatasetPtr& dataset() const { return no_dataset_; }
  virtual std::optional<int64_t> size() const = 0;
  virtual void set_slice(DataSlice slice, bool even) = 0;
  virtual void set_pin_memory(bool pin_memory) = 0;
  virtual void end_together(const std::function<bool(bool ended)>& any_ended) {}
  /// The same data with the same options from the same place.
  virtual std::shared_ptr<LoaderImpl> copy() const = 0;
  /// The same data in the same order from the same place, in batches of so many times the size, as
  /// rank 0 reads them for that many ranks.
  virtual std::shared_ptr<LoaderImpl> widened(int64_t times) const = 0;
  /// Returns a loader of the same data in the order of the dataset, without shuffling and sampler.
  virtual std::shared_ptr<LoaderImpl> in_order() const = 0;

  /// next(), and what the options say of a last batch.
  bool next_padded(Batch& batch);
  virtual int64_t added() const { return added_; }

  virtual bool next(Batch& batch) = 0;
  virtual bool at_end() = 0;
  virtual int64_t padding() const { return 0; }
  virtual int64_t epoch() const = 0;
  virtual int64_t batches_done() const = 0;
  virtual void set_epoch(int64_t epoch) = 0;
  virtual void mark() {}
  virtual bool rewind() { return false; }
  virtual State state_dict() const = 0;
  virtual void load_state_dict(const State& state) = 0;

  /// Begins an iteration and returns its number; only the latest may go on.
  uint64_t iterate() {
    if (has_begun()) set_epoch(epoch() + 1);
    return ++iteration_;
  }
  uint64_t iteration() const { return iteration_; }

 protected:
  /// Batches were handed out since the last jump.
  virtual bool has_begun() const = 0;

 private:
  DataLoaderOptions options_;
  DatasetPtr no_dataset_;
  uint64_t iteration_ = 0;
  int64_t added_ = 0;     ///< samples of the last batch that next_padded() added
  at::Tensor full_mask_;  ///< mask of a batch without added samples
};

/// Batches of a data set that is read by index.
std::shared_ptr<LoaderImpl> make_map_loader(DatasetPtr dataset, DataLoaderOptions options);

}  // namespace levin::detail

namespace levin {

inline const std::shared_ptr<detail::LoaderImpl>& impl_of(const DataLoader& loader) {
  return loader.impl_;
}
inline DataLoader make_loader(std::shared_ptr<detail::LoaderImpl> impl) {
  return DataLoader(std::move(impl));
}

}  // namespace levin
