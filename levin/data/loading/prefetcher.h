#pragma once
// Prefetcher: fetches the batches of an order ahead of the one who consumes them, in that order.
// The worker side of the DataLoader, which starts it at every epoch and after every jump.
//
//   prefetcher.start(order, {seed, epoch});
//   while (prefetcher.next(batch) > 0) { ... }

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "levin/base/spin.h"
#include "levin/data/dataset.h"
#include "levin/data/loading/batch_pool.h"
#include "levin/data/sampler.h"

namespace levin::detail {

struct PrefetchOptions {
  int64_t batch_size = 1;
  bool drop_last = false;
  int64_t num_workers = 0;      ///< threads beside the consumer's
  int64_t prefetch_factor = 2;  ///< batches ahead for each of them
};

/// One mutex guards the order, the ring and the pool; it is held twice a batch, for as long as
/// copying the indices takes. Fetching is done outside of it, by the workers and by a consumer that
/// would have to wait: so workers are never slower than none. start, stop and next belong to the
/// consumer.
class Prefetcher {
 public:
  Prefetcher(DatasetPtr dataset, const PrefetchOptions& options);
  /// Waits for the batches that are being fetched, not for batches that have not begun.
  ~Prefetcher();

  /// Takes its indices from order from the first next() until stop(); order stands at its place.
  void start(Sampler& order, const DrawContext& context, bool pin_memory);
  /// Forgets what was fetched ahead. Does not wait.
  void stop();
  /// The next batch, and how many indices it was fetched by; 0 at the end of the order. Throws what
  /// its fetching threw, "data.loader.sample", and has stopped then.
  int64_t next(Batch& batch);

 private:
  struct Job {
    int64_t number = 0;  ///< its place in the order
    uint64_t run = 0;    ///< the start() that it belongs to
    std::vector<int64_t> indices = {};
    DrawContext context = {};
    bool pin_memory = false;
    Batch batch = {};   ///< memory to write in; when done, the result
    Batch memory = {};  ///< memory of the result, for the pool
    std::exception_ptr error = {};
  };
  struct Slot {
    bool ready = false;
    int64_t samples = 0;
    Batch batch = {};
    std::exception_ptr error = {};
  };

  void start_workers();
  void work(const std::stop_token& stop);
  void fetch(Job& job) const;
  // The rest wants mutex_ held.
  bool has_room(bool for_consumer) const;
  bool claim(Job& job);
  void publish(Job& job);
  int64_t take(Slot& slot, Batch& batch);
  void forget();
  Slot& slot_of(int64_t number) { return ring_[static_cast<size_t>(number) % ring_.size()]; }

  DatasetPtr dataset_;
  PrefetchOptions options_;
  int64_t num_workers_;  ///< threads really started
  Job own_job_;          ///< the consumer's

  SpinningMutex mutex_;
  std::condition_variable_any ready_;  ///< for the consumer: its batch is there
  std::condition_variable_any room_;   ///< for the workers: there is something to fetch
  Sampler* order_ = nullptr;
  DrawContext context_;
  bool pin_memory_ = false;
  bool running_ = false;  ///< between the first next() and stop() or the order's end
  uint64_t run_ = 0;
  int64_t claimed_ = 0;                   ///< batches that were begun
  int64_t taken_ = 0;                     ///< batches that were handed out
  std::atomic<bool> head_ready_ = false;  ///< hint: the batch of taken_ was published
  int64_t helping_ = 0;                   ///< 1 while the consumer fetches one itself
  std::vector<Slot> ring_;  ///< one more than the workers may fill, for the consumer's own
  BatchPool pool_;
  Batch layout_;  ///< names, shapes and dtypes (meta tensors) for pinned memory
  std::vector<std::jthread> workers_;  ///< last, so that they end first
};

}  // namespace levin::detail
