#include "levin/launch/node/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>

#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"

namespace levin::launch {
namespace {

using test::error_id;
using test::Launcher;
using test::Scratch;
using test::script;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(Binding, ReadsListsOfCpus) {
  EXPECT_THAT(parse_cpu_list("0-2,5"), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_EQ(error_id([] { parse_cpu_list("0-x"); }), "launch.binding");
}

/// A made-up machine: one NUMA node, socket and cache for each CPU that this process may use.
class Machine : public ::testing::Test {
 protected:
  Machine() : cpus_(own_cpus()) {
    for (const int cpu : cpus_) {
      const std::string number = std::to_string(cpu);
      write("node/node" + number + "/cpulist", number);
      write("cpu/cpu" + number + "/topology/physical_package_id", number);
      write("cpu/cpu" + number + "/cache/index3/shared_cpu_list", number);
    }
  }
  void write(const std::string& name, const std::string& text) {
    const auto path = scratch_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::vector<int> bound(std::string_view binding, int64_t rank, int64_t ranks) const {
    return cpus_for(binding, rank, ranks, scratch_.path());
  }

  std::vector<int> cpus_;
  Scratch scratch_;
};

TEST_F(Machine, NoneBindsNothing) { EXPECT_THAT(bound("none", 0, 2), IsEmpty()); }

TEST_F(Machine, RanksAreDealtOutToTheGroups) {
  if (cpus_.size() < 2) GTEST_SKIP() << "one CPU";
  const auto ranks = static_cast<int64_t>(cpus_.size());
  for (const char* binding : {"node", "socket", "core-complex", "exclusive"}) {
    EXPECT_THAT(bound(binding, 0, ranks), ElementsAre(cpus_.front())) << binding;
    EXPECT_THAT(bound(binding, ranks - 1, ranks), ElementsAre(cpus_.back())) << binding;
  }
  EXPECT_THAT(bound("node", 1, 2 * ranks), ElementsAre(cpus_.front()));
}

TEST_F(Machine, ExclusiveSharesNoCpu) {
  const auto ranks = static_cast<int64_t>(cpus_.size());
  EXPECT_EQ(error_id([&] {
              for (int64_t rank = 0; rank < 2 * ranks; ++rank) bound("exclusive", rank, 2 * ranks);
            }),
            "launch.binding");
}

TEST(Binding, AMachineWithoutSuchFilesIsOneGroup) {
  const Scratch scratch;
  for (const char* binding : {"node", "socket", "core-complex"}) {
    EXPECT_EQ(cpus_for(binding, 0, 2, scratch.path()), own_cpus()) << binding;
  }
}

TEST(Binding, RanksRunOnTheirCpus) {
  const Scratch scratch;
  if (own_cpus().size() < 2) GTEST_SKIP() << "one CPU";
  const auto program =
      script(scratch, "rank.sh", "grep Cpus_allowed_list /proc/self/status >$RANK.txt");
  Launcher launcher(scratch, {"-n", "2", "--numa-binding", "exclusive", program});
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_NE(test::get(scratch / "0.txt"), "");
  EXPECT_NE(test::get(scratch / "0.txt"), test::get(scratch / "1.txt"));
}

}  // namespace
}  // namespace levin::launch
