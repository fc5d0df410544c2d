#pragma once
// InOrder: pieces of work that threads do as they come, whose results are taken one after another. Not for
// users.
//
//   InOrder<Result> work(num_pieces, num_threads, [](int64_t piece) { return ...; });
//   while (auto result = work.next()) { ... }          // throws what a piece threw, in its turn

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace levin::text::row {

template <class Result>
class InOrder {
 public:
  InOrder(int64_t num_pieces, int64_t num_threads, std::function<Result(int64_t)> work)
      : num_pieces_(num_pieces),
        work_(std::move(work)),
        slots_(static_cast<size_t>(num_threads * kAhead)) {
    for (int64_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~InOrder() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    threads_.clear();
  }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;

  std::optional<Result> next() {
    if (taken_ == num_pieces_) return std::nullopt;
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(taken_);
    ready_.wait(lock, [&] { return slot.result || slot.error; });
    if (slot.error) std::rethrow_exception(slot.error);
    std::optional<Result> result = std::exchange(slot.result, std::nullopt);
    ++taken_;
    lock.unlock();
    room_.notify_all();
    return result;
  }

 private:
  static constexpr int64_t kAhead = 8;  // pieces for each thread

  struct Slot {
    std::optional<Result> result;
    std::exception_ptr error;
  };

  Slot& slot_of(int64_t piece) { return slots_[static_cast<size_t>(piece) % slots_.size()]; }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [&] { return stopped_ || begun_ < taken_ + std::ssize(slots_); });
      if (stopped_ || begun_ == num_pieces_) return;
      const int64_t piece = begun_++;
      lock.unlock();
      Slot done;
      try {
        done.result = work_(piece);
      } catch (...) {
        done.error = std::current_exception();
      }
      lock.lock();
      slot_of(piece) = std::move(done);
      ready_.notify_one();
    }
  }

  int64_t num_pieces_;
  std::function<Result(int64_t)> work_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable room_;
  std::vector<Slot> slots_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  bool stopped_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace levin::text::row
