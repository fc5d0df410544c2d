#include "levin/data/loading/prefetcher.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/data/loading/worker_thread.h"
#include "levin/data/sample_random.h"

namespace levin::detail {
namespace {

/// Throws the Error that names the first sample that fails by itself, for the batch that failed
/// with this message.
[[noreturn]] void blame_sample(const Dataset& dataset, std::span<const int64_t> indices,
                               const DrawContext& context, const std::string& message) {
  for (size_t i = 0; i < indices.size() && indices.size() > 1; ++i) {
    std::optional<std::string> alone;
    try {
      dataset.draw(indices.subspan(i, 1), context, {});
    } catch (...) {
      alone = current_message();
    }
    if (alone) LEVIN_FAIL("data.loader.sample", "sample {}: {}", indices[i], *alone);
  }
  if (indices.size() == 1) LEVIN_FAIL("data.loader.sample", "sample {}: {}", indices[0], message);
  LEVIN_FAIL("data.loader.sample", "samples {} to {} can each be read, but not together: {}",
             indices.front(), indices.back(), message);
}

Batch layout_of(const Batch& batch) {
  Batch layout;
  for (const auto& [name, tensor] : batch) {
    layout.set(name, at::empty(tensor.sizes(), tensor.options().device(at::kMeta)));
  }
  return layout;
}

Batch pinned(const Batch& layout) {
  Batch batch;
  for (const auto& [name, tensor] : layout) {
    batch.set(name, at::empty(tensor.sizes(),
                              at::TensorOptions(tensor.scalar_type()).pinned_memory(true)));
  }
  return batch;
}

}  // namespace

namespace {

// Threads that only compute and have to take turns on the cores make each other slower. The
// consumer fetches too and has one core.
int64_t useful_workers(const Dataset& dataset, int64_t wanted) {
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return dataset.in_memory() && cores > 0 ? std::min(wanted, cores - 1) : wanted;
}

}  // namespace

// The pool must hold what the ring, the threads and a consumer who keeps two batches hold, and one
// that is free.
Prefetcher::Prefetcher(DatasetPtr dataset, const PrefetchOptions& options)
    : dataset_(std::move(dataset)),
      options_(options),
      num_workers_(useful_workers(*dataset_, options.num_workers)),
      ring_(static_cast<size_t>(options.num_workers * options.prefetch_factor + 1)),
      pool_(ring_.size() + static_cast<size_t>(options.num_workers) + 4) {}

Prefetcher::~Prefetcher() {
  stop();
  for (std::jthread& worker : workers_) worker.request_stop();
}

void Prefetcher::start(Sampler& order, const DrawContext& context, bool pin_memory) {
  stop();
  const std::lock_guard lock(mutex_);
  order_ = &order;
  context_ = context;
  pin_memory_ = pin_memory;
}

void Prefetcher::stop() {
  const std::lock_guard lock(mutex_);
  forget();
}

void Prefetcher::forget() {
  ++run_;
  running_ = false;
  order_ = nullptr;
  claimed_ = taken_ = 0;
  for (Slot& slot : ring_) slot = {};
}

int64_t Prefetcher::next(Batch& batch) {
  start_workers();
  std::unique_lock lock(mutex_);
  if (taken_ == 0 && claimed_ == 0) {
    running_ = true;
    room_.notify_all();
  }
  for (;;) {
    Slot& slot = slot_of(taken_);
    if (slot.ready) return take(slot, batch);
    if (has_room(/*for_consumer=*/true) && claim(own_job_)) {
      helping_ = 1;
      lock.unlock();
      fetch(own_job_);
      lock.lock();
      helping_ = 0;
      publish(own_job_);
    } else if (taken_ == claimed_) {
      return 0;
    } else {
      head_ready_ = false;
      lock.unlock();
      spin_until([&] { return head_ready_.load(std::memory_order_acquire); });
      lock.lock();
      ready_.wait(lock, [&] { return slot.ready; });
    }
  }
}

void Prefetcher::start_workers() {
  while (std::ssize(workers_) < num_workers_) {
    workers_.push_back(start_worker([this](const std::stop_token& stop) { work(stop); }));
  }
}

void Prefetcher::work(const std::stop_token& stop) {
  Job job;
  std::unique_lock lock(mutex_);
  const auto wanted = [&] { return has_room(/*for_consumer=*/false); };
  while (room_.wait(lock, stop, wanted) && !stop.stop_requested()) {
    if (!claim(job)) continue;
    lock.unlock();
    fetch(job);
    lock.lock();
    publish(job);
  }
}

// Samples that the consumer fetches itself do not count, so the workers go on at full speed.
bool Prefetcher::has_room(bool for_consumer) const {
  const int64_t ahead = claimed_ - taken_;
  return running_ &&
         (for_consumer ? ahead < std::ssize(ring_) : ahead - helping_ < std::ssize(ring_) - 1);
}

bool Prefetcher::claim(Job& job) {
  try {
    job.indices.resize(static_cast<size_t>(options_.batch_size));
    const DrawScope draws(context_, DrawsOf::kOrder, {}, claimed_);
    const int64_t count = order_->next(job.indices);
    const int64_t least = options_.drop_last ? options_.batch_size : 1;
    running_ = count == options_.batch_size;
    if (count < least) return false;
    job.indices.resize(static_cast<size_t>(count));
  } catch (...) {
    running_ = false;
    job.indices.clear();
    job.error = std::current_exception();
  }
  job.number = claimed_++;
  job.run = run_;
  job.context = context_;
  job.pin_memory = pin_memory_;
  job.batch = pin_memory_ ? layout_ : pool_.take();
  return true;
}

void Prefetcher::fetch(Job& job) const {
  if (job.error) return;
  const c10::InferenceMode normal(false);  // inference tensors could not be trained on later
  const at::NoGradGuard no_grad;
  const DrawScope draws(job.context, DrawsOf::kBatch, job.indices);
  try {
    Batch reuse = job.pin_memory ? pinned(job.batch) : std::move(job.batch);
    job.batch = {};
    try {
      job.batch = dataset_->draw(job.indices, job.context, std::move(reuse));
    } catch (...) {
      blame_sample(*dataset_, job.indices, job.context, current_message());
    }
    if (job.pin_memory) job.batch = job.batch.pin_memory();
    job.memory = job.pin_memory ? layout_of(job.batch) : BatchPool::memory_of(job.batch);
  } catch (...) {
    job.error = std::current_exception();
  }
}

void Prefetcher::publish(Job& job) {
  Batch memory = std::exchange(job.memory, {});
  if (!job.pin_memory) {
    pool_.keep(memory);
  } else if (layout_.empty()) {
    layout_ = std::move(memory);
  }
  Batch batch = std::exchange(job.batch, {});
  std::exception_ptr error = std::exchange(job.error, nullptr);
  if (job.run != run_) return;
  slot_of(job.number) = {true, std::ssize(job.indices), std::move(batch), std::move(error)};
  if (job.number != taken_) return;
  head_ready_.store(true, std::memory_order_release);
  ready_.notify_one();
}

int64_t Prefetcher::take(Slot& slot, Batch& batch) {
  Slot taken = std::exchange(slot, {});
  if (taken.error) {
    forget();
    std::rethrow_exception(taken.error);
  }
  ++taken_;
  room_.notify_one();
  batch = std::move(taken.batch);
  return taken.samples;
}

}  // namespace levin::detail
