#include "levin/comm/lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace {

using levin::comm::Lane;

TEST(Lane, RunsInTheOrderGiven) {
  std::vector<int> order;
  {
    Lane lane;
    for (int i = 0; i < 100; ++i) {
      if (i % 7 == 0) {
        lane.run([&, i] { order.push_back(i); });
      } else {
        lane.start([&, i] { order.push_back(i); });
      }
    }
  }
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Lane, RunsWhatIsWaitedForInTheWaitingThread) {
  Lane lane;
  std::thread::id ran;
  lane.run([&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

TEST(Lane, RunsWhatWasStartedWithoutAWait) {
  Lane lane;
  std::atomic<bool> ran = false;
  const auto call = lane.start([&] { ran = true; });
  while (!call->done()) std::this_thread::yield();
  EXPECT_TRUE(ran);
}

TEST(Lane, HandsAnErrorToWhoWaitsAndGoesOn) {
  Lane lane;
  const auto fails = lane.start([] { throw std::runtime_error("no"); });
  const auto works = lane.start([] {});
  EXPECT_THROW(fails->wait(), std::runtime_error);
  EXPECT_NO_THROW(works->wait());
  EXPECT_TRUE(fails->error() != nullptr);
  EXPECT_THROW(lane.run([] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST(Lane, LetsGoOfACallsCapturesWhenItHasRun) {
  Lane lane;
  auto tensor = std::make_shared<int>(1);
  const auto call = lane.start([tensor] {});
  call->wait();
  EXPECT_EQ(tensor.use_count(), 1);
}

}  // namespace
