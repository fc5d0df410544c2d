#include "levin/comm/gloo/patience.h"

#include "levin/base/awake.h"

namespace levin::comm {
namespace {

// gloo takes a duration for the wall clock, and closes all connections when it is over.
constexpr std::chrono::hours kForEver(24 * 365);

}  // namespace

Patience::Patience() : thread_([this] { look(); }) {}

Patience::~Patience() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  end_.notify_all();
  thread_.join();
}

bool Patience::wait(c10d::Work& work, std::chrono::nanoseconds until) {
  std::list<Waiting>::iterator own;
  {
    const std::lock_guard lock(mutex_);
    own = waiting_.insert(waiting_.end(), {&work, until});
  }
  struct Leave {
    Patience& patience;
    std::list<Waiting>::iterator own;
    ~Leave() {
      const std::lock_guard lock(patience.mutex_);
      patience.waiting_.erase(own);
    }
  } const leave{*this, own};
  return work.wait(kForEver);
}

void Patience::look() {
  levin::detail::AwakeTime awake;
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, kLook, [this] { return is_ending_; })) {
    awake_ = awake.look();
    for (const Waiting& waiting : waiting_) {
      if (awake_.load() > waiting.until) waiting.work->abort();
    }
  }
}

}  // namespace levin::comm
