// The end of communicators of GPUs, on backends that count what is asked of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "levin/comm/process_group_impl.h"

namespace communicators {

using levin::comm::Communicators;
using ::testing::ElementsAre;

/// What was asked of a backend; it waits with its answer for `may_end`.
struct Asked {
  std::atomic<int> shutdowns = 0;
  std::atomic<int> aborts = 0;
  std::shared_future<void> may_end = {};
};

class Counting final : public c10d::Backend {
 public:
  explicit Counting(std::shared_ptr<Asked> asked) : Backend(0, 2), asked_(std::move(asked)) {}
  const std::string getBackendName() const override { return "counting"; }
  void shutdown() override {
    ++asked_->shutdowns;
    if (asked_->may_end.valid()) asked_->may_end.wait();
  }
  void abort() override { ++asked_->aborts; }

 private:
  std::shared_ptr<Asked> asked_;
};

struct Two {
  std::shared_ptr<Asked> first = std::make_shared<Asked>(), second = std::make_shared<Asked>();
  Communicators::Backend of_first = c10::make_intrusive<Counting>(first);
  Communicators::Backend of_second = c10::make_intrusive<Counting>(second);

  void add_to(Communicators& communicators) const {
    communicators.add(of_first);
    communicators.add(of_second);
  }
  std::vector<int> asked() const {
    return {first->shutdowns, first->aborts, second->shutdowns, second->aborts};
  }
};

TEST(Communicators, OfAGroupThatEndsWellIsShutDownAndElseAborted) {
  Two two;
  Communicators communicators;
  two.add_to(communicators);
  communicators.end(two.of_first, /*well=*/true);
  communicators.end(two.of_second, /*well=*/false);
  EXPECT_THAT(two.asked(), ElementsAre(1, 0, 0, 1));
}

TEST(Communicators, WhereARankIsGoneAllAreAbortedOnce) {
  Two two;
  Communicators communicators;
  two.add_to(communicators);
  communicators.abort();
  communicators.abort();
  communicators.end(two.of_first, /*well=*/true);
  communicators.end(two.of_second, /*well=*/false);
  EXPECT_THAT(two.asked(), ElementsAre(0, 1, 0, 1));
}

TEST(Communicators, WhatHasEndedIsNotAborted) {
  Two two;
  Communicators communicators;
  two.add_to(communicators);
  communicators.end(two.of_first, /*well=*/true);
  communicators.abort();
  EXPECT_THAT(two.asked(), ElementsAre(1, 0, 0, 1));
}

// As where another rank has failed and does not come.
TEST(Communicators, ShuttingDownThatHangsIsLeftToTheEndOfTheProcess) {
  Two two;
  std::promise<void> end;
  two.first->may_end = end.get_future().share();
  Communicators communicators(std::chrono::milliseconds(20));
  two.add_to(communicators);
  communicators.end(std::exchange(two.of_first, {}), /*well=*/true);  // returns
  communicators.end(std::exchange(two.of_second, {}), /*well=*/true);
  EXPECT_EQ(two.second->shutdowns, 1);
  end.set_value();
}

// As NCCL gives none for what it has put on the caller's stream.
TEST(Works, OfACollectiveWithoutOneAreDone) {
  const c10::intrusive_ptr<c10d::Work> none;
  EXPECT_TRUE(levin::comm::is_done(none));
  levin::comm::wait_for(none);
  const auto under_way = c10::make_intrusive<c10d::Work>();
  EXPECT_FALSE(levin::comm::is_done(under_way));
}

}  // namespace communicators
