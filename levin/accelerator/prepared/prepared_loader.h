#pragma once
// PreparedLoader: a DataLoader that moves its batches to the device. PreparedTorchLoader: a loader
// of torch::data that does so and gives each process its part of the data.
//
//   auto torch_loader = torch::data::make_data_loader(std::move(dataset), 64);
//   auto [loader] = accelerator.prepare(torch_loader);   // or the loader itself, *torch_loader
//   for (const auto& batch : loader) model->forward(batch.data);

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "levin/data/loader.h"

namespace levin {

/// Use of a loader: training (ranks get equal numbers of batches; for streams, whose
/// ranks may have different numbers, the epoch ends on all ranks as soon as it ends on one) or
/// evaluation (no sample repeats).
enum class LoaderRole { kTraining, kEvaluation };

namespace detail {

/// The running loops over prepared loaders, innermost last.
class LoadersInUse {
 public:
  /// One running loop.
  struct Loop {
    std::function<bool()> at_end;  ///< returns whether this batch is the last one
    /// Returns how many of the batch's last rows, over all processes, repeat other samples.
    std::function<int64_t()> padding;
    /// Returns how many of this process's rows were added to fill the batch.
    std::function<int64_t()> added = [] { return int64_t{0}; };
  };

  /// at_start is called when a loop starts.
  explicit LoadersInUse(std::function<void()> at_start = nullptr)
      : at_start_(std::move(at_start)) {}

  /// Adds a loop that starts now.
  void add(const std::shared_ptr<Loop>& loop) {
    loops_.push_back(loop);
    if (at_start_) at_start_();
  }
  /// Returns the innermost loop; null outside of all loops.
  std::shared_ptr<Loop> current() {
    while (!loops_.empty() && loops_.back().expired()) loops_.pop_back();
    return loops_.empty() ? nullptr : loops_.back().lock();
  }

 private:
  std::function<void()> at_start_;
  std::vector<std::weak_ptr<Loop>> loops_;
};

}  // namespace detail

/// A prepared DataLoader (a handle). It is iterated like the loader itself.
class PreparedLoader {
 public:
  /// Callback for each batch (ended = false) and for the end of the epoch (ended = true).
  using OnBatch = std::function<void(bool ended)>;

  using Place = std::function<Batch(const Batch&)>;  ///< function that moves a batch to the device

  /// Moves batches to a device with asynchronous copies.
  PreparedLoader(DataLoader loader, at::Device device)
      : PreparedLoader(std::move(loader), [device](const Batch& batch) {
          return batch.to(device, /*non_blocking=*/true);
        }) {}
  /// Moves batches with a function.
  PreparedLoader(
      DataLoader loader, Place place,
      std::shared_ptr<detail::LoadersInUse> in_use = std::make_shared<detail::LoadersInUse>(),
      OnBatch on_batch = nullptr, int64_t num_processes = 1)
      : num_processes_(num_processes),
        loader_(std::move(loader)),
        place_(std::make_shared<Place>(std::move(place))),
        in_use_(std::move(in_use)),
        on_batch_(std::make_shared<OnBatch>(std::move(on_batch))) {}

  /// Input iterator over the batches of an epoch.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;  ///< an input iterator
    using value_type = Batch;                          ///< a batch
    using difference_type = std::ptrdiff_t;            ///< required by the concept

    const Batch& operator*() const { return batch_; }    ///< The batch, on the device.
    const Batch* operator->() const { return &batch_; }  ///< The batch, on the device.
    /// Reads the next batch.
    Iterator& operator++() {
      batch_ = Batch();
      ++inner_;
      move();
      return *this;
    }
    void operator++(int) { ++*this; }  ///< Reads the next batch.
    /// Returns whether the epoch has ended.
    bool operator==(std::default_sentinel_t end) const { return inner_ == end; }

   private:
    friend class PreparedLoader;
    Iterator(DataLoader::Iterator inner, std::shared_ptr<Place> place,
             std::shared_ptr<detail::LoadersInUse::Loop> loop, std::shared_ptr<OnBatch> on_batch)
        : inner_(std::move(inner)),
          place_(std::move(place)),
          loop_(std::move(loop)),
          on_batch_(std::move(on_batch)) {
      move();
    }
    void move() {
      if (*on_batch_) (*on_batch_)(inner_ == std::default_sentinel);
      if (inner_ != std::default_sentinel) {
        batch_ = (*place_)(*inner_);
      } else {
        loop_.reset();
      }
    }

    DataLoader::Iterator inner_;
    std::shared_ptr<Place> place_;
    std::shared_ptr<detail::LoadersInUse::Loop> loop_;
    std::shared_ptr<OnBatch> on_batch_;
    Batch batch_;
  };

  /// Starts the next epoch, or resumes at the position of a loaded state (DataLoader::begin).
  Iterator begin() {
    auto loop = std::make_shared<detail::LoadersInUse::Loop>(detail::LoadersInUse::Loop{
        .at_end = [loader = loader_]() mutable { return loader.at_end(); },
        .padding = [loader = loader_] { return loader.padding(); },
        .added = [loader = loader_] { return loader.added(); }});
    in_use_->add(loop);
    return Iterator(loader_.begin(), place_, std::move(loop), on_batch_);
  }
  std::default_sentinel_t end() const { return {}; }  ///< End of the epoch.
  /// Returns whether the number of batches is known (DataLoader::has_size).
  bool has_size() const { return loader_.has_size(); }
  int64_t size() const { return loader_.size(); }  ///< Batches of an epoch (DataLoader::size).
  /// Samples that all processes read in one batch.
  int64_t total_batch_size() const { return loader_.options().batch_size * num_processes_; }
  DataLoader& loader() { return loader_; }  ///< The loader itself.

 private:
  int64_t num_processes_ = 1;
  DataLoader loader_;
  std::shared_ptr<Place> place_;
  std::shared_ptr<detail::LoadersInUse> in_use_;
  std::shared_ptr<OnBatch> on_batch_;
};

namespace detail {

// Helpers for batches of torch::data: a tensor, an Example of tensors, or a vector of samples. They
// do not need the headers of torch::data.

template <class Batch>
concept IsExample = requires(Batch batch) { batch.data; };

inline int64_t rows_of(const at::Tensor& batch) { return batch.size(0); }
template <class T>
int64_t rows_of(const std::vector<T>& batch) {
  return static_cast<int64_t>(batch.size());
}
template <IsExample Example>
int64_t rows_of(const Example& batch) {
  return rows_of(batch.data);
}

inline void append(at::Tensor& batch, const at::Tensor& more) { batch = at::cat({batch, more}); }
template <class T>
void append(std::vector<T>& batch, const std::vector<T>& more) {
  batch.insert(batch.end(), more.begin(), more.end());
}
template <IsExample Example>
void append(Example& batch, const Example& more) {
  append(batch.data, more.data);
  if constexpr (requires { batch.target; }) append(batch.target, more.target);
}

/// Returns the rows first, first + stride, ...
inline at::Tensor every(const at::Tensor& batch, int64_t first, int64_t stride) {
  return batch.slice(0, first, batch.size(0), stride);
}
template <class T>
std::vector<T> every(const std::vector<T>& batch, int64_t first, int64_t stride) {
  std::vector<T> part;
  for (int64_t i = first; i < rows_of(batch); i += stride) {
    part.push_back(batch[static_cast<size_t>(i)]);
  }
  return part;
}
template <IsExample Example>
Example every(Example batch, int64_t first, int64_t stride) {
  batch.data = every(batch.data, first, stride);
  if constexpr (requires { batch.target; }) batch.target = every(batch.target, first, stride);
  return batch;
}

inline at::Tensor first_rows(const at::Tensor& batch, int64_t count) {
  return batch.slice(0, 0, count);
}
template <class T>
std::vector<T> first_rows(const std::vector<T>& batch, int64_t count) {
  return {batch.begin(), batch.begin() + std::min(count, rows_of(batch))};
}
template <IsExample Example>
Example first_rows(Example batch, int64_t count) {
  batch.data = first_rows(batch.data, count);
  if constexpr (requires { batch.target; }) batch.target = first_rows(batch.target, count);
  return batch;
}

using ToDevice = std::function<at::Tensor(const at::Tensor&)>;

inline void move_to(at::Tensor& batch, const ToDevice& to_device) { batch = to_device(batch); }
template <class T>
void move_to(std::vector<T>& batch, const ToDevice& to_device);
template <IsExample Example>
void move_to(Example& batch, const ToDevice& to_device) {
  move_to(batch.data, to_device);
  if constexpr (requires { batch.target; }) move_to(batch.target, to_device);
}
template <class T>
void move_to(std::vector<T>& batch, const ToDevice& to_device) {
  for (T& sample : batch) {
    if constexpr (requires { move_to(sample, to_device); }) move_to(sample, to_device);
  }
}

/// Functions of the Accelerator that a loop over a loader of torch::data calls.
struct TorchLoaderHooks {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t parts = 1;  ///< devices of a process, which share its rows
  ToDevice to_device;
  std::function<void()> end_batch;  ///< called when the previous batch is no longer used
  std::shared_ptr<LoadersInUse> in_use;
  /// Calls the function with the main process' random state.
  std::function<void(const std::function<void()>&)> in_step;
};

}  // namespace detail

/// A prepared loader of torch::data (a handle). One step takes as many of the loader's batches as
/// there are processes (on XLA: devices of all processes), n of them. Process r gets the rows r, r
/// + n, ... of these batches together, so gather_for_metrics returns the rows in their order. If
/// the rows of the last step do not divide, the first rows of the epoch repeat.
///
/// Every process reads all the data, in the order given by the main process' random state; a
/// levin::DataLoader reads only its part. save_state does not record the position in an epoch,
/// which restarts, and random numbers that the data set draws in worker threads differ in each run.
/// A levin::DataLoader over data::torch_dataset resumes at its position, with the same random
/// numbers.
template <class TorchLoader>
class PreparedTorchLoader {
 public:
  using Batch = typename TorchLoader::BatchType;  ///< the loader's batch type

  /// Used by Accelerator::prepare.
  PreparedTorchLoader(std::shared_ptr<TorchLoader> loader, detail::TorchLoaderHooks engine)
      : loader_(std::move(loader)), engine_(std::move(engine)) {}

  /// Input iterator over the batches of an epoch.
  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;  ///< an input iterator
    using value_type = Batch;                          ///< a batch
    using difference_type = std::ptrdiff_t;            ///< required by the concept

    Batch& operator*() { return *mine_; }  ///< This process' part of the batch, on the device.
    /// This process' part of the batch, on the device.
    const Batch& operator*() const { return *mine_; }
    Batch* operator->() { return &*mine_; }  ///< This process' part of the batch, on the device.
    /// Reads the next batch.
    Iterator& operator++() {
      take();
      return *this;
    }
    void operator++(int) { take(); }  ///< Reads the next batch.
    /// Returns whether the epoch has ended.
    bool operator==(std::default_sentinel_t) const { return !mine_; }

   private:
    friend class PreparedTorchLoader;
    using Inner = decltype(std::declval<TorchLoader&>().begin());

    Iterator(TorchLoader& loader, const detail::TorchLoaderHooks& engine)
        : engine_(engine),
          loop_(std::make_shared<detail::LoadersInUse::Loop>()),
          end_(loader.end()) {
      engine_.in_use->add(loop_);
      engine_.in_step([&] { inner_.emplace(loader.begin()); });
      read();
      take();
    }

    /// Reads the next batches of the loader and joins them.
    void read() {
      whole_.reset();
      for (int64_t i = 0; i < engine_.size * engine_.parts && *inner_ != end_; ++i, ++*inner_) {
        if (whole_) {
          detail::append(*whole_, **inner_);
        } else {
          whole_ = **inner_;
        }
      }
    }

    void take() {
      engine_.end_batch();
      mine_ = std::exchange(whole_, std::nullopt);
      if (!mine_) return loop_.reset();
      read();
      const int64_t parts = engine_.size * engine_.parts;
      if (!opening_) opening_ = detail::first_rows(*mine_, parts - 1);
      const int64_t rows = detail::rows_of(*mine_);
      const int64_t missing = (parts - rows % parts) % parts;
      for (int64_t left = missing; left > 0; left -= detail::rows_of(*opening_)) {
        detail::append(*mine_, detail::first_rows(*opening_, left));
      }
      *mine_ = detail::every(std::move(*mine_), engine_.rank, engine_.size);
      detail::move_to(*mine_, engine_.to_device);
      *loop_ = {.at_end = [ended = !whole_] { return ended; },
                .padding = [missing] { return missing; }};
    }

    detail::TorchLoaderHooks engine_;
    std::shared_ptr<detail::LoadersInUse::Loop> loop_;
    std::optional<Inner> inner_;
    Inner end_;
    std::optional<Batch> whole_;    ///< read ahead, to know which batch is the last
    std::optional<Batch> opening_;  ///< the first rows of the epoch
    std::optional<Batch> mine_;
  };

  Iterator begin() { return Iterator(*loader_, engine_); }  ///< Starts an epoch.
  std::default_sentinel_t end() const { return {}; }        ///< End of the epoch.

 private:
  std::shared_ptr<TorchLoader> loader_;
  detail::TorchLoaderHooks engine_;
};

}  // namespace levin
