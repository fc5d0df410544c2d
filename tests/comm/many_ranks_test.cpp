// What a run of many ranks asks of its one store: counted in a store of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/comm/backends.h"
#include "levin/comm/roll_call.h"
#include "levin/comm/watchdog/watchdog.h"
#include "tests/comm/counting_store.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/variable.h"

namespace {

using levin::comm::Watchdog;
using levin::test::CountingStore;
using levin::test::error_of;
using levin::test::on_ranks;
using ::testing::Each;
using ::testing::HasSubstr;

int64_t requests_to_meet(int64_t size) {
  auto store = c10::make_intrusive<CountingStore>();
  const auto words = on_ranks(size, [&](int64_t rank) {
    return levin::comm::choose_backend(*store, rank, size, {}) + " " +
           levin::comm::choose_address(*store, rank, size, "127.0.0.1");
  });
  EXPECT_THAT(words, Each("shm 127.0.0.1"));
  return store->requests();
}

TEST(ManyRanks, MeetByAFewRequestsEach) {
  const int64_t few = requests_to_meet(16), many = requests_to_meet(256);
  EXPECT_LE(few, 16 * 8);
  EXPECT_LE(many, 256 * 8);
}

TEST(ManyRanks, AllAreToldWhoDidNotCome) {
  auto store = c10::make_intrusive<CountingStore>();
  store->setTimeout(std::chrono::milliseconds(500));
  const auto words = on_ranks(8, [&](int64_t rank) -> std::string {
    if (rank == 5) return "comm.connect: rank 5 of 8 did not connect within 0.5 s";
    return error_of([&] { levin::comm::choose_backend(*store, rank, 8, {}); });
  });
  EXPECT_THAT(words, Each(HasSubstr("comm.connect: rank 5 of 8 did not connect within 0.5 s")));
  EXPECT_LE(store->requests(), 8 * 8);
  store = c10::make_intrusive<CountingStore>();
  store->setTimeout(std::chrono::milliseconds(200));
  EXPECT_THAT(error_of([&] { levin::comm::choose_backend(*store, 1, 2, {}); }),
              HasSubstr("rank 0 of 2 did not connect"));
}

TEST(ManyRanks, TakeNoTableThatIsNone) {
  for (const char* text :
       {"", "[]", "1:a", "1:a1:b1:c", "1:a9:b", "1:a-1:b", "1:a:b", "1:a99999999999999999999:b"}) {
    auto store = c10::make_intrusive<CountingStore>();
    store->set("host/all", std::vector<uint8_t>(text, text + std::string_view(text).size()));
    EXPECT_THAT(
        error_of([&] { levin::comm::choose_backend(*store, 1, 2, {}); }),
        HasSubstr("comm.connect: the store of the run has no valid 'host' of each of 2 ranks"))
        << text;
  }
}

TEST(ManyRanks, TakeNoWordOfAnyLength) {
  auto store = c10::make_intrusive<CountingStore>();
  const std::string text = "1:a300:" + std::string(300, 'x');
  store->set("host/all", std::vector<uint8_t>(text.begin(), text.end()));
  EXPECT_THAT(
      error_of([&] { levin::comm::choose_backend(*store, 1, 2, {}); }),
      HasSubstr("comm.connect: the store of the run has no valid 'host' of each of 2 ranks"));
}

/// As one whose server was stopped, until it goes on.
class SilentStore final : public CountingStore {
 public:
  std::vector<uint8_t> get(const std::string&) override {
    while (!goes_on) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return {};
  }
  std::atomic<bool> goes_on = false;
};

TEST(ManyRanks, WaitForNoStoreThatDoesNotAnswer) {
  const auto store = c10::make_intrusive<SilentStore>();
  EXPECT_THAT(error_of([&] {
                levin::comm::call_roll_late(store, {.topic = "late", .rank = 1, .size = 2}, "word",
                                            std::chrono::milliseconds(100), {});
              }),
              HasSubstr("comm.connect: the store of the run does not answer"));
  store->goes_on = true;  // and has not answered before
}

TEST(ManyRanks, WaitNoLongerThanThereIsReasonTo) {
  const auto store = c10::make_intrusive<CountingStore>();
  const auto give_up = [] { throw std::runtime_error("given up"); };
  EXPECT_THROW(levin::comm::call_roll_late(store, {.topic = "late", .rank = 1, .size = 2}, "word",
                                           std::chrono::hours(100), give_up),
               std::runtime_error);
}

/// All but the last rank wait in operation 7 for as long as it takes to ask about it.
struct Diagnosis {
  int64_t requests = 0, bytes = 0;
  std::vector<std::string> words;
};
Diagnosis diagnose_on(int64_t size) {
  const levin::test::Scratch scratch;
  const levin::test::Variable folder("LEVIN_FLIGHT_DIR", scratch.str());
  auto store = c10::make_intrusive<CountingStore>();
  const std::string group = "world";
  std::vector<std::unique_ptr<Watchdog>> watchdogs;
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    watchdogs.push_back(std::make_unique<Watchdog>(store, rank));
    ranks.push_back(rank);
    for (int64_t number = 1; number <= (rank + 1 < size ? 7 : 6); ++number) {
      const auto ticket =
          watchdogs.back()->recorder().begin(group, number, "all_reduce", at::kFloat, 1000);
      if (number < 7) watchdogs.back()->recorder().end(ticket);
    }
  }
  const int64_t requests = store->requests(), bytes = store->bytes();
  Diagnosis found;
  found.words = on_ranks(size - 1, [&](int64_t rank) {
    return watchdogs[static_cast<size_t>(rank)]->diagnose(ranks, group, 7);
  });
  found.requests = store->requests() - requests;
  found.bytes = store->bytes() - bytes;
  return found;
}

TEST(ManyRanks, AskAboutATimeoutOnceForAll) {
  const Diagnosis found = diagnose_on(64);
  EXPECT_THAT(found.words,
              Each(HasSubstr("rank 63 did not call it: its last was number 6, all_reduce")));
  // Polls of the watchdogs and of the one that asks are among them.
  EXPECT_LE(found.requests, 64 * 16);
  EXPECT_LE(found.bytes, 64 * 4096);
}

TEST(ManyRanks, QuestionsOfAStrangerCostFewAnswers) {
  auto store = c10::make_intrusive<CountingStore>();
  const Watchdog watchdog(store, 0);
  store->add("flight/asked", int64_t{1} << 40);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_LE(store->requests(), 20);
}

}  // namespace
