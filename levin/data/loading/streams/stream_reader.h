#pragma once
// StreamReader: reads lanes ahead of the one who consumes them.
// The worker side of a StreamLoader, as the Prefetcher is of a loader by indices.
//
//   reader.start(std::move(lanes), pin_memory);
//   while (auto read = reader.next(lane)) { ... }      // that lane's next batch

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "levin/data/loading/batch_pool.h"
#include "levin/data/loading/streams/stream_lane.h"

namespace levin::detail {

/// One mutex guards the queues. Streams are read outside of it, each lane by one thread at a time:
/// a worker, or the consumer if no worker has begun the batch that it needs. start, stop and next
/// belong to the consumer.
class StreamReader {
 public:
  struct Read {
    Batch batch = {};
    StreamLane::Place after = {};  ///< place of the lane behind the batch
  };

  /// Each of the workers reads up to prefetch_factor batches ahead, on average.
  StreamReader(int64_t num_workers, int64_t prefetch_factor);
  /// Waits for the batches that are being read.
  ~StreamReader();

  void start(std::vector<StreamLane> lanes, bool pin_memory);
  /// Forgets what was read ahead. Does not wait.
  void stop();
  /// The next batch of that lane, nothing at its end. Throws what reading it threw and has stopped
  /// then.
  std::optional<Read> next(size_t lane);

 private:
  struct Result {
    std::optional<Read> read = {};  ///< none: the lane's end, or an error
    Batch memory = {};              ///< memory of the batch, for the pool
    std::exception_ptr error = {};
  };
  struct Queue {
    explicit Queue(StreamLane of) : lane(std::move(of)) {}
    StreamLane lane;  ///< its reader's while busy
    bool busy = false;
    bool ended = false;  ///< nothing is left to be read
    std::deque<Result> results;
  };

  void work(const std::stop_token& stop);
  Result read(StreamLane& lane, Batch reuse, bool pin_memory) const;
  /// Reads one batch of it; the lock is let go of meanwhile.
  void fill(const std::shared_ptr<Queue>& queue, std::unique_lock<std::mutex>& lock);
  // These want mutex_ held.
  std::shared_ptr<Queue> most_wanted() const;
  void forget();

  int64_t num_workers_;
  int64_t batches_ahead_;  ///< batches ahead of all lanes together

  std::mutex mutex_;
  std::condition_variable_any ready_;  ///< for the consumer: a lane was read
  std::condition_variable_any room_;   ///< for the workers: there is something to read
  std::vector<std::shared_ptr<Queue>> queues_;
  size_t turn_ = 0;  ///< lane that was asked for last
  bool pin_memory_ = false;
  BatchPool pool_;
  std::vector<std::jthread> workers_;  ///< last, so that they end first
};

}  // namespace levin::detail
