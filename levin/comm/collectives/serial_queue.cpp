#include "levin/comm/collectives/serial_queue.h"

#include <utility>

namespace levin::comm {

bool SerialQueue::Call::done() const {
  const std::lock_guard lock(queue->mutex_);
  return is_done;
}

void SerialQueue::Call::wait() {
  queue->finish(*this);
  if (thrown) std::rethrow_exception(thrown);
}

std::exception_ptr SerialQueue::Call::error() const {
  const std::lock_guard lock(queue->mutex_);
  return thrown;
}

SerialQueue::~SerialQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<SerialQueue::Call> SerialQueue::append(std::function<void()> body) {
  auto call = std::make_shared<Call>();
  call->queue = this;
  call->body = std::move(body);
  const std::lock_guard lock(mutex_);
  calls_.push_back(call);
  return call;
}

std::shared_ptr<SerialQueue::Call> SerialQueue::start(std::function<void()> body) {
  auto call = append(std::move(body));
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  work_.notify_one();
  return call;
}

void SerialQueue::run(std::function<void()> body) { append(std::move(body))->wait(); }

void SerialQueue::finish(const Call& call) {
  std::unique_lock lock(mutex_);
  while (!call.is_done) {
    if (busy_) {
      done_.wait(lock);
    } else {
      run_first(lock);
    }
  }
}

void SerialQueue::run_first(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<Call> call = std::move(calls_.front());
  calls_.pop_front();
  busy_ = true;
  lock.unlock();
  std::exception_ptr thrown;
  try {
    call->body();
  } catch (...) {
    thrown = std::current_exception();
  }
  call->body = nullptr;  // lets go of its tensors
  lock.lock();
  call->thrown = thrown;
  call->is_done = true;
  busy_ = false;
  done_.notify_all();
  if (!calls_.empty()) work_.notify_one();
}

void SerialQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return !busy_ && (!calls_.empty() || ending_); });
    if (calls_.empty()) return;
    run_first(lock);
  }
}

}  // namespace levin::comm
