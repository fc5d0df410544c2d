#pragma once
// PreparedLoader: a DataLoader whose batches arrive on the engine's device.

#include <cstddef>
#include <iterator>

#include "levin/data/loader.h"

namespace levin {

/// A handle, iterated as the loader itself.
class PreparedLoader {
 public:
  PreparedLoader(DataLoader loader, at::Device device)
      : loader_(std::move(loader)), device_(device) {}

  class Iterator {
   public:
    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++() {
      batch_ = Batch();
      more_ = loader_->next(batch_);
      if (more_) batch_ = batch_.to(device_, /*non_blocking=*/true);
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !more_; }

   private:
    friend class PreparedLoader;
    Iterator(DataLoader* loader, at::Device device) : loader_(loader), device_(device) { ++*this; }
    DataLoader* loader_;
    at::Device device_;
    Batch batch_;
    bool more_ = false;
  };

  Iterator begin() { return Iterator(&loader_, device_); }
  std::default_sentinel_t end() const { return {}; }
  /// Batches of one epoch on this rank.
  int64_t size() const { return loader_.size(); }
  DataLoader& loader() { return loader_; }

 private:
  DataLoader loader_;
  at::Device device_;
};

}  // namespace levin
