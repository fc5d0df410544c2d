#include "levin/comm/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "levin/comm/environment/port.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::comm::connect_store;
using levin::comm::Environment;
using levin::test::error_of;
using levin::test::run_ranks;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Environment rank_of_two(int64_t rank, int64_t port) {
  return {.rank = {.rank = rank, .world_size = 2, .local_rank = rank, .local_world_size = 2},
          .master_address = "127.0.0.1",
          .master_port = port};
}

int64_t unused_port() { return levin::comm::listen_on(0, "").port(); }

/// Says its own number to the other rank and hears the other's.
std::string talk(c10d::Store& store, int64_t rank) {
  store.set(std::to_string(rank), std::vector<uint8_t>{static_cast<uint8_t>(rank + 7)});
  const int64_t heard = store.get(std::to_string(1 - rank)).at(0);
  return heard == 8 - rank ? "" : "heard " + std::to_string(heard);
}

TEST(Store, RankZeroServesIt) {
  const int64_t port = unused_port();
  const auto words = run_ranks(2, [&](int64_t rank, const auto&) {
    const auto store = connect_store(rank_of_two(rank, port), seconds(20));
    const std::string word = talk(*store, rank);
    store->add("done", 1);
    while (rank == 0 && store->add("done", 0) < 2) std::this_thread::sleep_for(seconds(0));
    return word;
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Store, AFileServesWhereThereIsNoNetwork) {
  const auto words = run_ranks(2, [](int64_t rank, const std::filesystem::path& folder) {
    auto environment = rank_of_two(rank, 0);
    environment.master_address = "file://" + (folder / "meeting").string();
    return talk(*connect_store(environment, seconds(20)), rank);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Store, AnAttemptSeesNothingOfTheOneBefore) {
  const levin::test::Scratch scratch;
  auto environment = rank_of_two(0, 0);
  environment.master_address = "file://" + (scratch / "meeting").string();
  connect_store(environment, seconds(5))->set("key", std::vector<uint8_t>{1});
  EXPECT_TRUE(connect_store(environment, seconds(5))->check({"key"}));
  environment.restart_count = 1;
  EXPECT_FALSE(connect_store(environment, seconds(5))->check({"key"}));
}

TEST(Store, APortThatIsTakenIsAnErrorThatNamesIt) {
  const auto taken = levin::comm::listen_on(0, "");
  EXPECT_THAT(error_of([&] { connect_store(rank_of_two(0, taken.port()), seconds(2)); }),
              StartsWith("comm.environment.port: rank 0 cannot serve the store on port " +
                         std::to_string(taken.port())));
}

TEST(Store, ARankZeroThatNeverComesIsAnErrorThatSaysWhere) {
  const int64_t port = unused_port();
  EXPECT_THAT(error_of([&] { connect_store(rank_of_two(1, port), seconds(1)); }),
              StartsWith("comm.store: no store answers on 127.0.0.1:" + std::to_string(port)));
}

// In a process of its own, for a thread goes on that LibTorch gives no end: a test that forked
// while it held a lock (it prints where it failed) would leave its child to wait for that lock for
// ever.
TEST(Store, SomethingElseThatListensIsAnError) {
  const auto words = run_ranks(1, [](int64_t, const auto&) {
    const auto deaf = levin::comm::listen_on(0, "");
    return error_of([&] { connect_store(rank_of_two(1, deaf.port()), seconds(1)); });
  });
  EXPECT_THAT(words, Each(HasSubstr("comm.store: ")));
}

TEST(Store, OneProcessNeedsNoNetwork) {
  const auto store = connect_store({}, seconds(1));
  store->set("key", std::vector<uint8_t>{5});
  EXPECT_EQ(store->get("key").at(0), 5);
}

}  // namespace
