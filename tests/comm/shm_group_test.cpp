#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <numeric>

#include "levin/comm/shm/group.h"
#include "tests/comm/ranks.h"

namespace {

using levin::comm::Elements;
using levin::comm::Reduction;
using levin::comm::shm::Group;
using levin::comm::shm::GroupOptions;
using levin::test::board_in;
using levin::test::run_ranks;
using levin::test::wait_for_words;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr GroupOptions kSmallChunks = {.timeout = std::chrono::seconds(60), .chunk_bytes = 4096};

template <class T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kLong;

template <class T>
Elements of(std::vector<T>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), kType<T>, std::ssize(values)};
}

/// A value that tells rank and index.
float value(int64_t rank, int64_t index) {
  return static_cast<float>(rank + 1) * 0.37F + static_cast<float>(index % 1013) * 0.011F;
}

std::vector<float> values(int64_t rank, int64_t count) {
  std::vector<float> all(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) all[static_cast<size_t>(i)] = value(rank, i);
  return all;
}

/// In rank order, as every rank must compute it.
float sum_at(int64_t size, int64_t index) {
  float total = value(0, index);
  for (int64_t rank = 1; rank < size; ++rank) total += value(rank, index);
  return total;
}

std::string differs(const std::string& what, int64_t count, int64_t index, float got,
                    float wanted) {
  return what + " of " + std::to_string(count) + " at " + std::to_string(index) + ": " +
         std::to_string(got) + " and not " + std::to_string(wanted);
}

using GroupCheck = std::string (*)(Group& group, int64_t count);

std::string all_reduce_is_the_sum(Group& group, int64_t count) {
  std::vector<float> data = values(group.rank(), count);
  group.all_reduce(of(data), Reduction::kSum);
  for (int64_t i = 0; i < count; ++i) {
    if (data[i] != sum_at(group.size(), i))
      return differs("sum", count, i, data[i], sum_at(group.size(), i));
  }
  return "";
}

std::string all_reduce_in_shared_memory_is_the_sum(Group& group, int64_t count) {
  const auto memory = group.allocate(count * 4);
  auto* data = reinterpret_cast<float*>(memory.get());
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int64_t i = 0; i < count; ++i) data[i] = value(group.rank(), i);
    group.all_reduce({memory.get(), at::kFloat, count}, Reduction::kSum);
    for (int64_t i = 0; i < count; ++i) {
      if (data[i] != sum_at(group.size(), i))
        return differs("sum", count, i, data[i], sum_at(group.size(), i));
    }
  }
  return "";
}

std::string broadcast_is_the_roots(Group& group, int64_t count) {
  for (int64_t root = 0; root < group.size(); ++root) {
    std::vector<float> data = values(group.rank(), count);
    group.broadcast(of(data), root);
    if (data != values(root, count)) return "broadcast of " + std::to_string(count);
  }
  return "";
}

std::string reduce_reaches_the_root_alone(Group& group, int64_t count) {
  const int64_t root = group.size() - 1;
  std::vector<float> data = values(group.rank(), count);
  group.reduce(of(data), root, Reduction::kMax);
  if (data != values(group.rank() == root ? root : group.rank(), count)) return "reduce";
  return "";
}

std::string gathers_are_in_rank_order(Group& group, int64_t count) {
  std::vector<float> mine = values(group.rank(), count), wanted;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto theirs = values(rank, count);
    wanted.insert(wanted.end(), theirs.begin(), theirs.end());
  }
  std::vector<float> all(wanted.size());
  const std::vector<int64_t> counts(static_cast<size_t>(group.size()), count);
  group.all_gather(of(all), of(mine), counts);
  if (all != wanted) return "all_gather of " + std::to_string(count);

  std::vector<std::vector<float>> parts(static_cast<size_t>(group.size()),
                                        std::vector<float>(count));
  std::vector<Elements> results;
  for (auto& part : parts) results.push_back(of(part));
  group.gather(results, of(mine), 0);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto expected = group.rank() == 0 ? values(rank, count) : std::vector<float>(count);
    if (parts[static_cast<size_t>(rank)] != expected) return "gather of " + std::to_string(count);
  }
  return "";
}

std::string all_gather_in_shared_memory_is_in_rank_order(Group& group, int64_t count) {
  const auto memory = group.allocate(group.size() * count * 4);
  std::byte* place = memory.get() + group.rank() * count * 4;
  const auto mine = values(group.rank(), count);
  std::memcpy(place, mine.data(), mine.size() * 4);
  const std::vector<int64_t> counts(static_cast<size_t>(group.size()), count);
  group.all_gather({memory.get(), at::kFloat, group.size() * count}, {place, at::kFloat, count},
                   counts);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto theirs = values(rank, count);
    if (std::memcmp(memory.get() + rank * count * 4, theirs.data(), theirs.size() * 4) != 0) {
      return "all_gather in shared memory of " + std::to_string(count);
    }
  }
  return "";
}

std::string scatter_gives_each_its_part(Group& group, int64_t count) {
  std::vector<std::vector<float>> parts;
  for (int64_t rank = 0; rank < group.size(); ++rank) parts.push_back(values(10 + rank, count));
  std::vector<Elements> elements;
  for (auto& part : parts) elements.push_back(of(part));
  std::vector<float> mine(static_cast<size_t>(count));
  group.scatter(of(mine), elements, group.size() - 1);
  return mine == values(10 + group.rank(), count) ? "" : "scatter of " + std::to_string(count);
}

std::string reduce_scatter_is_a_part_of_the_sum(Group& group, int64_t count) {
  std::vector<float> data = values(group.rank(), count * group.size());
  std::vector<float> mine(static_cast<size_t>(count));
  const auto shared = group.allocate(std::ssize(data) * 4);
  std::memcpy(shared.get(), data.data(), data.size() * 4);
  for (const Elements& from : {of(data), Elements{shared.get(), at::kFloat, std::ssize(data)}}) {
    const std::vector<int64_t> counts(static_cast<size_t>(group.size()), count);
    group.reduce_scatter(of(mine), from, counts, Reduction::kSum);
    for (int64_t i = 0; i < count; ++i) {
      const float wanted = sum_at(group.size(), group.rank() * count + i);
      if (mine[i] != wanted) return differs("reduce_scatter", count, i, mine[i], wanted);
    }
  }
  return "";
}

/// The second rank's part is empty.
std::vector<int64_t> uneven(const Group& group, int64_t count) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    counts.push_back(rank == 1 ? 0 : count + 5 * rank);
  }
  return counts;
}

std::string uneven_parts_are_read_where_they_lie(Group& group, int64_t count) {
  const std::vector<int64_t> counts = uneven(group, count);
  const auto own = static_cast<size_t>(group.rank());
  const int64_t total = levin::comm::sum_of(counts);
  const int64_t begin = levin::comm::begin_of(group.rank(), counts);
  const auto memory = group.allocate(total * 4);
  const Elements whole = {memory.get(), at::kFloat, total};
  const std::vector<float> data = values(group.rank(), total);
  std::memcpy(memory.get(), data.data(), data.size() * 4);
  std::vector<float> mine(static_cast<size_t>(counts[own]));
  group.reduce_scatter(of(mine), whole, counts, Reduction::kSum);
  for (int64_t i = 0; i < counts[own]; ++i) {
    const float wanted = sum_at(group.size(), begin + i);
    if (mine[i] != wanted) return differs("uneven reduce_scatter", count, i, mine[i], wanted);
  }
  // Null for no elements, as LibTorch has it.
  Elements part = whole.part(begin, counts[own]);
  if (part.count == 0) part.data = nullptr;
  group.all_gather(whole, part, counts);
  for (int64_t rank = 0, at = 0; rank < group.size(); ++rank) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(rank)]; ++i, ++at) {
      const auto got = reinterpret_cast<float*>(memory.get())[at];
      if (got != value(rank, at)) return differs("uneven gather", count, at, got, value(rank, at));
    }
  }
  return "";
}

/// Rank r sends count + r * 3 + q elements to rank q.
std::string all_to_all_crosses(Group& group, int64_t count) {
  const auto length = [&](int64_t from, int64_t to) { return count + 3 * from + to; };
  std::vector<std::vector<float>> parts, results;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    parts.push_back(values(10 * group.rank() + rank, length(group.rank(), rank)));
    results.emplace_back(length(rank, group.rank()));
  }
  std::vector<Elements> sent, received;
  for (auto& part : parts) sent.push_back(of(part));
  for (auto& result : results) received.push_back(of(result));
  group.all_to_all(received, sent);
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    if (results[rank] != values(10 * rank + group.rank(), length(rank, group.rank())))
      return "all_to_all";
  }
  return "";
}

struct GroupCollective {
  std::string name;
  GroupCheck check;
};

class ShmCollective : public testing::TestWithParam<GroupCollective> {};

TEST_P(ShmCollective, IsRightForAllSizesAndNumbersOfRanks) {
  for (const int64_t size : {1, 2, 3, 4}) {
    const auto words = run_ranks(size, [&](int64_t rank, const auto& folder) {
      Group group(rank, size, board_in(folder), kSmallChunks);
      for (const int64_t count : {1, 7, 1024, 1025, 40000, 100003}) {
        std::string wrong = GetParam().check(group, count);
        if (!wrong.empty()) return wrong;
      }
      return std::string();
    });
    EXPECT_THAT(words, Each("")) << size << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shm, ShmCollective,
    testing::Values(GroupCollective{"AllReduce", all_reduce_is_the_sum},
                    GroupCollective{"AllReduceInPlace", all_reduce_in_shared_memory_is_the_sum},
                    GroupCollective{"Broadcast", broadcast_is_the_roots},
                    GroupCollective{"Reduce", reduce_reaches_the_root_alone},
                    GroupCollective{"Gather", gathers_are_in_rank_order},
                    GroupCollective{"AllGatherInPlace",
                                    all_gather_in_shared_memory_is_in_rank_order},
                    GroupCollective{"Scatter", scatter_gives_each_its_part},
                    GroupCollective{"ReduceScatter", reduce_scatter_is_a_part_of_the_sum},
                    GroupCollective{"UnevenPartsInPlace", uneven_parts_are_read_where_they_lie},
                    GroupCollective{"AllToAll", all_to_all_crosses}),
    [](const auto& info) { return info.param.name; });

TEST(ShmGroup, NamesTheCallsThatDiffer) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    Group group(rank, 3, board_in(folder), kSmallChunks);
    group.barrier();
    std::vector<float> data(rank == 2 ? 5 : 4);
    group.all_reduce(of(data), Reduction::kSum);
    return std::string("no error");
  });
  EXPECT_THAT(words, Each(AllOf(StartsWith("comm.mismatch: collective 2: rank "),
                                HasSubstr("all_reduce of 5 x Float"),
                                HasSubstr("all_reduce of 4 x Float"))));
}

TEST(ShmGroup, NamesTheRankThatNeverComes) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    Group group(rank, 3, board_in(folder),
                {.timeout = rank == 0 ? levin::test::patient(std::chrono::milliseconds(300))
                                      : std::chrono::hours(10)});
    group.barrier();
    if (rank == 1) {
      wait_for_words(folder, {0, 2});
      return std::string("elsewhere");
    }
    group.barrier();
    return std::string("no error");
  });
  EXPECT_THAT(
      words[0],
      ContainsRegex(
          "^comm.timeout: waited [0-9.]+ s in barrier, collective 2, but rank 1 did not call it"));
  EXPECT_EQ(words[1], "elsewhere");
  EXPECT_THAT(words[2], StartsWith("comm.peer: rank 0 left the group"));
}

// By the one word or by the other, and not by a timeout.
TEST(ShmGroup, HearsOfARankThatWasKilled) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    Group group(rank, 3, board_in(folder), kSmallChunks);
    group.barrier();
    if (rank == 2) ::raise(SIGKILL);
    for (;;) group.barrier();
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.peer: rank 2 died"));
  EXPECT_THAT(words[1], StartsWith("comm.peer: rank"));
  EXPECT_EQ(words[2], "no word");
}

TEST(ShmGroup, HearsOfARankThatLeaves) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    Group group(rank, 2, board_in(folder), kSmallChunks);
    if (rank == 1) return std::string();
    group.barrier();
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.peer: rank 1 left the group"));
}

TEST(ShmGroup, SaysWhoDidNotCome) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    if (rank == 1) return std::string();
    Group group(rank, 3, board_in(folder), {.timeout = std::chrono::milliseconds(200)});
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.shm.link: rank 1 did not connect in time"));
}

TEST(ShmGroup, RefusesAReductionThatIsNotDefined) {
  const auto words = run_ranks(1, [](int64_t, const auto& folder) {
    Group group(0, 1, board_in(folder), kSmallChunks);
    std::vector<float> data(4);
    group.all_reduce(of(data), Reduction::kXor);
    return std::string("no error");
  });
  EXPECT_THAT(words, Each(StartsWith("comm.reduce: xor is not defined for Float")));
}

TEST(ShmGroup, SaysWhenThereIsNotSoMuchMemory) {
  const auto words = run_ranks(1, [](int64_t, const auto& folder) {
    Group group(0, 1, board_in(folder), kSmallChunks);
    group.allocate(int64_t{1} << 50);
    return std::string("no error");
  });
  EXPECT_THAT(words,
              Each(AllOf(StartsWith("comm.shm.memory: shared memory needs 1125899906842624 bytes"),
                         HasSubstr("set the backend to gloo"))));
}

TEST(ShmGroup, ChecksWhatAllToAllExpects) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    Group group(rank, 2, board_in(folder), kSmallChunks);
    std::vector<float> a(4), b(4), c(4), d(rank == 0 ? 4 : 5);
    const std::vector<Elements> results = {of(a), of(b)}, parts = {of(c), of(d)};
    group.all_to_all(results, parts);
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.peer: rank 1 left the group"));
  EXPECT_THAT(words[1], StartsWith("comm.mismatch: all_to_all: rank 1 sends 5 elements and rank 1 "
                                   "expects 4"));
}

TEST(ShmGroup, SendsToOneRankWithoutTheOthers) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    Group group(rank, 3, board_in(folder), kSmallChunks);
    // Rank 1 comes when the others have done: they cannot have waited for it.
    if (rank == 1) wait_for_marks(folder, {"done.0", "done.2"});
    for (const int64_t count : {0, 1, 16000, 1000000}) {
      std::vector<float> data = values(0, count), came(static_cast<size_t>(count));
      if (rank == 0) group.send(of(data), 2, count);
      if (rank == 2) group.receive(of(came), 0, count);
      if (rank == 2 && came != data) return "wrong: " + std::to_string(count);
    }
    std::ofstream(folder / ("done." + std::to_string(rank)));
    group.barrier();
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

TEST(ShmGroup, SaysInBothRanksThatAMessageIsNotTheExpectedOne) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    Group group(rank, 2, board_in(folder), kSmallChunks);
    std::vector<float> data(1000000);
    if (rank == 0) group.send(of(data), 1, 3);
    if (rank == 1) group.receive(of(data), 0, 4);
    return std::string("no error");
  });
  EXPECT_THAT(words, Each(StartsWith("comm.mismatch: rank 0 sent 1000000 x Float with tag 3 and "
                                     "rank 1 expects 1000000 x Float with tag 4")));
}

TEST(ShmGroup, HearsOfASenderThatIsGone) {
  const auto words = run_ranks(3, [](int64_t rank, const auto& folder) {
    Group group(rank, 3, board_in(folder), kSmallChunks);
    std::vector<float> data(1000000);
    group.barrier();
    if (rank == 0) group.receive(of(data), 2, 0);
    if (rank == 1) group.send(of(data), 2, 0);
    ::raise(SIGKILL);
    return std::string("no error");
  });
  EXPECT_THAT(words[0], StartsWith("comm.peer: rank 2 died before a message was complete: 1000000 "
                                   "x Float with tag 0 from rank 2 to rank 0"));
  EXPECT_THAT(words[1], StartsWith("comm.peer: rank 2 died before a message was complete"));
}

TEST(ShmGroup, WaitsForAMessageNoLongerThanTheTimeout) {
  const auto words = run_ranks(2, [](int64_t rank, const auto& folder) {
    Group group(rank, 2, board_in(folder),
                {.timeout = levin::test::patient(std::chrono::milliseconds(300))});
    std::vector<float> data(10);
    if (rank == 0) group.receive(of(data), 1, 7);
    wait_for_words(folder, {0});
    return std::string("elsewhere");
  });
  EXPECT_THAT(words[0], ContainsRegex("^comm.timeout: waited [0-9.]+ s for rank 1: 10 x Float with "
                                      "tag 7 from rank 1 to rank 0"));
}

TEST(ShmGroup, IsNotMixedUpByManyRoundsInARow) {
  const auto words = run_ranks(4, [](int64_t rank, const auto& folder) {
    Group group(rank, 4, board_in(folder), kSmallChunks);
    for (int64_t i = 0; i < 5000; ++i) {
      std::vector<int64_t> data = {rank + i, rank * i};
      group.all_reduce(of(data), Reduction::kSum);
      if (data[0] != 6 + 4 * i || data[1] != 6 * i) return "wrong at " + std::to_string(i);
    }
    return std::string();
  });
  EXPECT_THAT(words, Each(""));
}

/// Stops all ranks of a group for longer than its timeout while one of them is late, and lets them
/// go on, the first one sooner; what they say.
TEST(ShmGroup, RanksThatWereStoppedTogetherHaveWaitedForNobody) {
  const auto timeout = std::min<std::chrono::milliseconds>(
      levin::test::patient(std::chrono::seconds(2)), std::chrono::seconds(10));
  for (const bool message : {false, true}) {
    const auto words = run_ranks(3, [&](int64_t rank, const std::filesystem::path& folder) {
      const auto mark = [&](int64_t of) { return folder / ("pid." + std::to_string(of)); };
      if (rank == 2) {  // the one that stops the others
        for (const int64_t of : {0, 1}) {
          while (!std::filesystem::exists(mark(of))) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        pid_t pids[2] = {};
        for (const int64_t of : {0, 1}) std::ifstream(mark(of)) >> pids[of];
        for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
        std::this_thread::sleep_for(1.75 * timeout);
        for (const pid_t pid : pids) {
          ::kill(pid, SIGCONT);
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
        return std::string();
      }
      Group group(rank, 2, board_in(folder), {.timeout = timeout});
      std::ofstream(mark(rank).string() + ".new") << ::getpid();
      std::filesystem::rename(mark(rank).string() + ".new", mark(rank));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
      std::vector<float> data = {1};
      if (message) {
        rank == 0 ? group.receive(of(data), 1, 0) : group.send(of(data), 0, 0);
      } else {
        group.all_reduce(of(data), Reduction::kSum);
      }
      return std::string();
    });
    EXPECT_THAT(words, Each(""));
  }
}

}  // namespace
