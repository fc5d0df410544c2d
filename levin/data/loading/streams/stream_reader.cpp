#include "levin/data/loading/streams/stream_reader.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <utility>

#include "levin/data/loading/worker_thread.h"

namespace levin::detail {

// The pool must hold what the queues, the threads and a consumer who keeps two batches hold, and
// one that is free.
StreamReader::StreamReader(int64_t num_workers, int64_t prefetch_factor)
    : num_workers_(num_workers),
      batches_ahead_(num_workers * prefetch_factor),
      pool_(static_cast<size_t>(batches_ahead_ + num_workers + 4)) {}

StreamReader::~StreamReader() {
  stop();
  for (std::jthread& worker : workers_) worker.request_stop();
}

void StreamReader::start(std::vector<StreamLane> lanes, bool pin_memory) {
  const std::lock_guard lock(mutex_);
  forget();
  for (StreamLane& lane : lanes) queues_.push_back(std::make_shared<Queue>(std::move(lane)));
  pin_memory_ = pin_memory;
  while (std::ssize(workers_) < num_workers_) {
    workers_.push_back(start_worker([this](const std::stop_token& stop) { work(stop); }));
  }
  room_.notify_all();
}

void StreamReader::stop() {
  const std::lock_guard lock(mutex_);
  forget();
}

void StreamReader::forget() {
  queues_.clear();  // a thread that reads one of them keeps it until it is done
  turn_ = 0;
}

std::optional<StreamReader::Read> StreamReader::next(size_t lane) {
  std::unique_lock lock(mutex_);
  turn_ = lane;
  const std::shared_ptr<Queue> queue = queues_[lane];
  while (queue->results.empty()) {
    if (queue->ended) return std::nullopt;
    if (queue->busy) {
      ready_.wait(lock, [&] { return !queue->busy; });
    } else {
      fill(queue, lock);
    }
  }
  Result result = std::move(queue->results.front());
  queue->results.pop_front();
  if (result.error) {
    forget();
    std::rethrow_exception(result.error);
  }
  room_.notify_one();
  return std::move(result.read);
}

void StreamReader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto wanted = [&] { return most_wanted() != nullptr; };
  while (room_.wait(lock, stop, wanted) && !stop.stop_requested()) fill(most_wanted(), lock);
}

// The lane whose next batch the consumer will ask for first: the one with the fewest read ahead,
// and of these the next in turn.
std::shared_ptr<StreamReader::Queue> StreamReader::most_wanted() const {
  const auto lanes = std::ssize(queues_);
  int64_t ahead = 0;
  for (const auto& queue : queues_) ahead += std::ssize(queue->results) + (queue->busy ? 1 : 0);
  if (ahead >= batches_ahead_) return nullptr;
  std::shared_ptr<Queue> best;
  for (int64_t i = 0; i < lanes; ++i) {
    const auto& queue = queues_[static_cast<size_t>((static_cast<int64_t>(turn_) + i) % lanes)];
    if (queue->busy || queue->ended) continue;
    if (best == nullptr || queue->results.size() < best->results.size()) best = queue;
  }
  return best;
}

void StreamReader::fill(const std::shared_ptr<Queue>& queue, std::unique_lock<std::mutex>& lock) {
  queue->busy = true;
  const bool pin_memory = pin_memory_;
  Batch reuse = pool_.take();
  lock.unlock();
  Result result = read(queue->lane, std::move(reuse), pin_memory);
  lock.lock();
  pool_.keep(std::exchange(result.memory, {}));
  queue->busy = false;
  queue->ended = !result.read.has_value();
  if (result.read || result.error) queue->results.push_back(std::move(result));
  ready_.notify_one();
}

StreamReader::Result StreamReader::read(StreamLane& lane, Batch reuse, bool pin_memory) const {
  const c10::InferenceMode normal(false);  // inference tensors could not be trained on later
  const at::NoGradGuard no_grad;
  Result result;
  try {
    Read read;
    if (!lane.read(read.batch, std::move(reuse))) return result;
    read.after = lane.place();
    if (pin_memory) {
      read.batch = read.batch.pin_memory();
    } else {
      result.memory = BatchPool::memory_of(read.batch);
    }
    result.read = std::move(read);
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

}  // namespace levin::detail
