#pragma once
// PreparedLoader: a DataLoader whose batches arrive on the engine's device.

#include <cstddef>
#include <iterator>
#include <utility>

#include "levin/data/loader.h"

namespace levin {

/// A handle, iterated as the loader itself.
class PreparedLoader {
 public:
  PreparedLoader(DataLoader loader, at::Device device)
      : loader_(std::move(loader)), device_(device) {}

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
    Iterator(DataLoader::Iterator inner, at::Device device)
        : inner_(std::move(inner)), device_(device) {
      move();
    }
    void move() {
      if (inner_ != std::default_sentinel) batch_ = inner_->to(device_, /*non_blocking=*/true);
    }

    DataLoader::Iterator inner_;
    at::Device device_;
    Batch batch_;
  };

  Iterator begin() { return Iterator(loader_.begin(), device_); }
  std::default_sentinel_t end() const { return {}; }
  /// As the loader's.
  bool has_size() const { return loader_.has_size(); }
  int64_t size() const { return loader_.size(); }
  DataLoader& loader() { return loader_; }

 private:
  DataLoader loader_;
  at::Device device_;
};

}  // namespace levin
