#include "levin/comm/collectives/serial_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace {

using levin::comm::SerialQueue;

TEST(SerialQueue, RunsInTheOrderGiven) {
  std::vector<int> order;
  {
    SerialQueue queue;
    for (int i = 0; i < 100; ++i) {
      if (i % 7 == 0) {
        queue.run([&, i] { order.push_back(i); });
      } else {
        queue.start([&, i] { order.push_back(i); });
      }
    }
  }
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(SerialQueue, RunsWhatIsWaitedForInTheWaitingThread) {
  SerialQueue queue;
  std::thread::id ran;
  queue.run([&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(SerialQueue, RunsWhatWasStartedWithoutAWait) {
  SerialQueue queue;
  std::atomic<bool> ran = false;
  const auto call = queue.start([&] { ran = true; });
  while (!call->done()) std::this_thread::yield();
  EXPECT_TRUE(ran);
}

TEST(SerialQueue, HandsAnErrorToWhoWaitsAndGoesOn) {
  SerialQueue queue;
  const auto fails = queue.start([] { throw std::runtime_error("no"); });
  const auto works = queue.start([] {});
  EXPECT_THROW(fails->wait(), std::runtime_error);
  EXPECT_NO_THROW(works->wait());
  EXPECT_TRUE(fails->error() != nullptr);
  EXPECT_THROW(queue.run([] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST(SerialQueue, LetsGoOfACallsCapturesWhenItHasRun) {
  SerialQueue queue;
  auto tensor = std::make_shared<int>(1);
  const auto call = queue.start([tensor] {});
  call->wait();
  EXPECT_EQ(tensor.use_count(), 1);
}

}  // namespace
