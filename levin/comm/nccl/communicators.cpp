#include "levin/comm/nccl/communicators.h"

#include <algorithm>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "levin/base/log.h"

namespace levin::comm {

void Communicators::add(const Backend& backend) {
  const std::lock_guard lock(mutex_);
  backends_.push_back(backend);
}

void Communicators::abort() noexcept {
  try {
    std::vector<Backend> all;
    {
      const std::lock_guard lock(mutex_);
      is_aborted_ = true;
      all.swap(backends_);
    }
    for (const Backend& backend : all) {
      in_time(backend, [](c10d::Backend& each) { each.abort(); });
    }
  } catch (const std::exception& error) {
    log::debug("comm: cannot abort an NCCL communicator: {}", error.what());
  }
}

void Communicators::end(const Backend& backend, bool well) noexcept {
  if (backend == nullptr) return;
  try {
    {
      const std::lock_guard lock(mutex_);
      std::erase(backends_, backend);
      if (is_aborted_) return;
    }
    if (well) {
      in_time(backend, [](c10d::Backend& each) { each.shutdown(); });
    } else {
      in_time(backend, [](c10d::Backend& each) { each.abort(); });
    }
  } catch (const std::exception& error) {
    log::debug("comm: cannot destroy an NCCL communicator: {}", error.what());
  }
}

// In a thread that may go on when the patience is at an end. It holds what it works on: a destructor
// would hang as well.
void Communicators::in_time(const Backend& backend, void (*action)(c10d::Backend& backend)) const {
  const auto done = std::make_shared<std::promise<void>>();
  const std::future<void> ended = done->get_future();
  std::thread([done, action, held = backend]() mutable {
    try {
      action(*held);
    } catch (const std::exception& error) {
      log::debug("comm: {}", error.what());
    }
    held.reset();
    done->set_value();
  }).detach();
  ended.wait_for(patience_);
}

}  // namespace levin::comm
