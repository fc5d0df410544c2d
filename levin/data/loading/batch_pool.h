#pragma once
// BatchPool: the memory of batches that were handed out, to be used again when they are released.
// With it a loader that has warmed up allocates nothing and touches no new page.
//
//   pool.keep(BatchPool::memory_of(batch));           // before the batch is handed out
//   Batch reuse = pool.take();                        // memory that only the pool still held

#include <cstddef>
#include <string>
#include <vector>

#include "levin/data/batch.h"

namespace levin::detail {

/// Not thread-safe, except that batches may be let go of in any thread at any time.
class BatchPool {
 public:
  /// A pool of at most so many tensors of each field; the oldest makes room.
  explicit BatchPool(size_t capacity);

  /// The batch's tensors under the pool's own handles, so that nothing a user does to theirs
  /// (resize_, requires_grad_) shows in them. Left out are tensors whose memory is not the batch's
  /// alone (views of a data set), not on the CPU, or pinned: LibTorch's allocator waits for the
  /// copies that a device still makes from pinned memory, the pool cannot.
  static Batch memory_of(const Batch& batch);

  void keep(const Batch& memory);

  /// Returns for each field the latest tensor that nobody else holds; an empty batch when there are
  /// none. It works field by field, because a batch may be released while this looks, or kept in
  /// part.
  Batch take();

 private:
  struct Field {
    std::string name;
    std::vector<at::Tensor> kept = {};  ///< oldest first
  };

  size_t capacity_;
  std::vector<Field> fields_;
};

}  // namespace levin::detail
