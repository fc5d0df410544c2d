#include "levin/comm/shm/door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "levin/comm/shm/group.h"
#include "levin/comm/shm/segment.h"
#include "tests/comm/ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/strangers.h"

namespace {

using namespace levin::test;  // NOLINT
using levin::comm::Reduction;
using levin::comm::shm::Door;
using levin::comm::shm::Group;
using levin::comm::shm::knock;
using levin::comm::shm::Segment;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A rank of two whose words to the log go to a file; 0 when the sum was right.
pid_t start_rank(int64_t rank, const Scratch& scratch) {
  return start_child([&, rank]() -> int {
    const auto log = scratch / ("log." + std::to_string(rank));
    ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    Group group(rank, 2, board_in(scratch.path()), {.timeout = seconds(20)});
    std::vector<float> data = {static_cast<float>(rank + 1)};
    group.all_reduce({reinterpret_cast<std::byte*>(data.data()), at::kFloat, 1}, Reduction::kSum);
    return data[0] == 3 ? 0 : 1;
  });
}

std::string hub_word(const Scratch& scratch) { return board_in(scratch.path()).read("hub"); }

/// What a rank would say, with that token.
std::string greeting(std::string token, int64_t rank) {
  token.resize(32, 'x');
  return token.append(reinterpret_cast<const char*>(&rank), sizeof rank);
}

TEST(Door, StrangersNeitherGetAPlaceNorKeepRanksWaiting) {
  const Scratch scratch;
  const pid_t first = start_rank(0, scratch);
  const std::string word = hub_word(scratch);
  const std::string name = word.substr(0, word.find(' ')), token = word.substr(name.size() + 1);
  EXPECT_THAT(sockets_of(first), ::testing::ElementsAre(name));  // who asks the kernel sees it

  std::vector<Descriptor> strangers;
  for (const std::string& words :
       {std::string(), greeting("wrong", 1), greeting(token, 1).substr(0, 20),
        greeting(token, 1) + std::string(9000, 'x'), greeting(token, 0), greeting(token, 2),
        greeting(token, -1), std::string("GET / HTTP/1.0\r\n\r\n")}) {
    strangers.push_back(connect_abstract(name));
    ASSERT_TRUE(strangers.back());
    if (!words.empty()) say(strangers.back(), words);
  }
  const int other = as_another_user([&]() -> int {
    const Descriptor socket = connect_abstract(name);
    say(socket, greeting(token, 1));
    char letter = 0;
    return ::recv(socket.number(), &letter, 1, 0) <= 0 ? 0 : 1;  // nothing is told to it
  });
  EXPECT_TRUE(other == 0 || other == kSkipped) << other;

  const pid_t second = start_rank(1, scratch);
  EXPECT_EQ(wait_for(second), 0) << get(scratch / "log.1");
  EXPECT_EQ(wait_for(first), 0) << get(scratch / "log.0");
  const std::string log = get(scratch / "log.0");
  for (const char* why :
       {"it does not know the token", "its greeting has 20 bytes", "its greeting has 9040 bytes",
        "it says it is rank 0 of 2", "it says it is rank 2 of 2", "it says it is rank -1 of 2"}) {
    EXPECT_THAT(log, HasSubstr(why));
  }
  EXPECT_THAT(log,
              HasSubstr("refused a connection to the socket of this machine's ranks (process " +
                        std::to_string(::getpid()) + ")"));
  if (other != 0) return;
  EXPECT_THAT(log, HasSubstr("it belongs to the user 65534"));
}

TEST(Door, SendsAwayWhoSaysNothing) {
  const Scratch scratch;
  Door door(2);
  const std::string word = door.word();
  const Descriptor silent = connect_abstract(word.substr(0, word.find(' ')));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(door.admit(start + std::chrono::milliseconds(2500)).has_value());
  char letter = 0;
  EXPECT_EQ(::recv(silent.number(), &letter, 1, MSG_DONTWAIT), 0);  // closed
  EXPECT_FALSE(door.admit(start).has_value());
}

TEST(Door, ManyWhoSayNothingLeaveRoomForARank) {
  Door door(2);
  const std::string word = door.word();
  std::vector<Descriptor> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(connect_abstract(word.substr(0, word.find(' '))));
    if (i % 100 != 99) continue;
    EXPECT_FALSE(door.admit(std::chrono::steady_clock::now()).has_value());
  }
  const Descriptor rank = knock(word, 1);
  const auto caller = door.admit(std::chrono::steady_clock::now() + seconds(100));
  ASSERT_TRUE(caller.has_value());
  EXPECT_EQ(caller->rank, 1);
}

TEST(Door, ARankKnocksAtNoOtherUsersSocket) {
  const Scratch scratch;
  std::filesystem::permissions(scratch.path(), std::filesystem::perms::all);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const pid_t impostor = start_child([&]() -> int {
    if (::setuid(kNobody) != 0) return 1;
    Door door(2);
    board_in(scratch.path()).write("hub", door.word());
    door.admit(std::chrono::steady_clock::now() + seconds(5));
    return 0;
  });
  const std::string word = hub_word(scratch);
  EXPECT_THAT(error_of([&] { knock(word, 1); }),
              StartsWith("comm.shm.link: a process of user 65534 listens on the socket of this "
                         "machine's first rank"));
  ::kill(impostor, SIGKILL);
  wait_for(impostor);
}

TEST(Door, WhatTheStoreSaysIsNoNameOfAnyLength) {
  for (const std::string& word :
       {std::string(), std::string("name"), std::string("name token"),
        std::string(5000, 'x') + " " + std::string(32, 'a'), "n " + std::string(33, 'a')}) {
    EXPECT_EQ(error_id([&] { knock(word, 1); }), "comm.shm.link") << word.size();
  }
}

int memory_of(size_t bytes, int seals) {
  const int memory = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(memory, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(memory, F_ADD_SEALS, seals), 0);
  return memory;
}

TEST(Segment, TakesNoMemoryOfAnotherSizeOrThatCanBeCutShort) {
  const auto id = [](size_t bytes, int seals) {
    return error_id([&] { Segment::map(Descriptor(memory_of(bytes, seals)), 8192); });
  };
  EXPECT_EQ(id(8192, F_SEAL_SHRINK | F_SEAL_GROW), "no error");
  EXPECT_EQ(id(4096, F_SEAL_SHRINK | F_SEAL_GROW), "comm.shm.memory");
  EXPECT_EQ(id(8192, F_SEAL_GROW), "comm.shm.memory");
  EXPECT_EQ(id(8192, 0), "comm.shm.memory");
}

TEST(Segment, NobodyCutsItsOwnShort) {
  const Segment segment = Segment::create(8192);
  EXPECT_NE(::ftruncate(segment.descriptor(), 4096), 0);
  EXPECT_NE(::fcntl(segment.descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

}  // namespace
