#pragma once
// PreparedLoader: a DataLoader whose batches arrive on the engine's device.

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "levin/data/loader.h"

namespace levin {

/// The loops over prepared loaders that run, the innermost last.
class LoadersInUse {
 public:
  struct Loop {
    std::function<bool()> at_end;      ///< this batch is the last
    std::function<int64_t()> padding;  ///< its last rows, on all processes together, repeat others
    /// So many of this process's rows fill it up.
    std::function<int64_t()> added = [] { return int64_t{0}; };
  };

  /// at_start is called when a loop starts.
  explicit LoadersInUse(std::function<void()> at_start = nullptr)
      : at_start_(std::move(at_start)) {}

  void add(const std::shared_ptr<Loop>& loop) {
    loops_.push_back(loop);
    if (at_start_) at_start_();
  }
  /// Null outside of all loops.
  std::shared_ptr<Loop> current() {
    while (!loops_.empty() && loops_.back().expired()) loops_.pop_back();
    return loops_.empty() ? nullptr : loops_.back().lock();
  }

 private:
  std::function<void()> at_start_;
  std::vector<std::weak_ptr<Loop>> loops_;
};

/// A handle, iterated as the loader itself.
class PreparedLoader {
 public:
  /// Called for each batch with false and at the end with true.
  using OnBatch = std::function<void(bool ended)>;

  /// Puts a batch on the device.
  using Place = std::function<Batch(const Batch&)>;

  PreparedLoader(DataLoader loader, at::Device device)
      : PreparedLoader(std::move(loader), [device](const Batch& batch) {
          return batch.to(device, /*non_blocking=*/true);
        }) {}
  PreparedLoader(DataLoader loader, Place place,
                 std::shared_ptr<LoadersInUse> in_use = std::make_shared<LoadersInUse>(),
                 OnBatch on_batch = nullptr)
      : loader_(std::move(loader)),
        place_(std::make_shared<Place>(std::move(place))),
        in_use_(std::move(in_use)),
        on_batch_(std::make_shared<OnBatch>(std::move(on_batch))) {}

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++() {
      batch_ = Batch();
      ++inner_;
      move();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t end) const { return inner_ == end; }

   private:
    friend class PreparedLoader;
    Iterator(DataLoader::Iterator inner, std::shared_ptr<Place> place,
             std::shared_ptr<LoadersInUse::Loop> loop, std::shared_ptr<OnBatch> on_batch)
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
    std::shared_ptr<LoadersInUse::Loop> loop_;
    std::shared_ptr<OnBatch> on_batch_;
    Batch batch_;
  };

  Iterator begin() {
    auto loop = std::make_shared<LoadersInUse::Loop>(
        LoadersInUse::Loop{.at_end = [loader = loader_]() mutable { return loader.at_end(); },
                           .padding = [loader = loader_] { return loader.padding(); },
                           .added = [loader = loader_] { return loader.added(); }});
    in_use_->add(loop);
    return Iterator(loader_.begin(), place_, std::move(loop), on_batch_);
  }
  std::default_sentinel_t end() const { return {}; }
  /// As the loader's.
  bool has_size() const { return loader_.has_size(); }
  int64_t size() const { return loader_.size(); }
  DataLoader& loader() { return loader_; }

 private:
  DataLoader loader_;
  std::shared_ptr<Place> place_;
  std::shared_ptr<LoadersInUse> in_use_;
  std::shared_ptr<OnBatch> on_batch_;
};

}  // namespace levin
