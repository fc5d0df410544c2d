#pragma once
// BatchPool: remembers the memory of batches that were handed out, until nobody reads it any more.
// What lets the loader's steady state allocate nothing and touch no new page.
//
//   pool.keep(BatchPool::memory_of(batch));           // before the batch is handed out
//   Batch reuse = pool.take();                        // memory that only the pool still held

#include <cstddef>
#include <vector>

#include "levin/data/batch.h"

namespace levin::detail {

/// Not thread-safe, except that batches may be let go of in any thread at any time.
class BatchPool {
 public:
  /// A pool of at most so many batches; the oldest makes room.
  explicit BatchPool(size_t capacity);

  /// The batch's tensors under the pool's own handles, so that nothing a user does to theirs
  /// (resize_, requires_grad_) shows in them. Left out are tensors whose memory is not the batch's
  /// alone (views of a data set), not on the CPU, or pinned: LibTorch's allocator waits for the
  /// copies that a device still makes from pinned memory, the pool cannot.
  static Batch memory_of(const Batch& batch);

  void keep(Batch memory);

  /// Those fields of the latest batch that nobody else holds; an empty batch when there are none.
  Batch take();

 private:
  size_t capacity_;
  std::vector<Batch> kept_;  ///< oldest first
};

}  // namespace levin::detail
