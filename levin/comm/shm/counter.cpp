#include "levin/comm/shm/counter.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace levin::comm::shm {

void Counter::set(uint32_t value) {
  value_.store(value);  // in one order with sleepers_: who goes to sleep sees it or is seen
  if (sleepers_.load() > 0) wake();
}

void Counter::wake() {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

void Counter::sleep_while(uint32_t value, std::chrono::nanoseconds longest) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
  const timespec time = {seconds.count(), (longest - seconds).count()};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&value_), FUTEX_WAIT, value, &time, nullptr, 0);
}

}  // namespace levin::comm::shm
