// The command line of `levin run`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/launcher.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;

std::string failure_of(const Scratch& scratch, const Words& words) {
  Launcher launcher(scratch, words);
  EXPECT_EQ(launcher.wait(), 2);
  return launcher.err();
}

TEST(RunCommand, NamesWhatItDoesNotTake) {
  const Scratch scratch;
  const std::vector<std::pair<Words, std::string>> cases = {
      {{"--nproc-per-nod", "2", "x"},
       "tools.run: the command line has no option '--nproc-per-nod'; did you mean "
       "'--nproc-per-node'?"},
      {{"-n", "two", "x"}, "tools.run: --nproc-per-node: got 'two', wanted a number, cpu, gpu or"},
      {{"--max-restarts", "x", "y"},
       "tools.run: max_restarts of the command line: got 'x', wanted an integer"},
      {{"--rdzv-backend", "etcd", "x"}, "tools.run: --rdzv-backend: got 'etcd'"},
      {{"--standalone", "--nnodes", "2", "x"}, "tools.run: --standalone is for one node"},
      {{"--hostfile", "h", "--node-rank", "1", "x"}, "tools.run: --hostfile lists the nodes"},
      {{"--print-manifest=nomad", "x"}, "tools.run: --print-manifest: got 'nomad'"},
      {{"-n", "2"}, "launch.options: no program to run"},
      {{}, "launch.options: no program to run"},
  };
  for (const auto& [words, expected] : cases) {
    EXPECT_THAT(failure_of(scratch, words), HasSubstr(expected));
  }
}

TEST(RunCommand, TakesBothSpellingsOfAnOption) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "echo $WORLD_SIZE $TORCHELASTIC_MAX_RESTARTS");
  Launcher dashes(scratch, {"--nproc-per-node=1", "--max-restarts", "3", program});
  EXPECT_EQ(dashes.wait(), 0);
  EXPECT_EQ(dashes.out(), "1 3\n");
  Launcher underscores(scratch,
                       {"--nproc_per_node", "1", "--max_restarts=4", "--no_python", program});
  EXPECT_EQ(underscores.wait(), 0);
  EXPECT_EQ(underscores.out(), "1 4\n");
}

TEST(RunCommand, TakesKubeflowsVariablesForOptions) {
  const Scratch scratch;
  const auto program = script(scratch, "rank.sh", "echo $WORLD_SIZE $RANK >$RANK.txt");
  const std::string port = free_port();
  const auto pod = [&](const std::string& rank) -> Settings {
    return {{"PET_NNODES", "2"},       {"PET_NPROC_PER_NODE", "2"},
            {"PET_NODE_RANK", rank},   {"PET_MASTER_ADDR", "localhost"},
            {"PET_MASTER_PORT", port}, {"RANK", rank},
            {"WORLD_SIZE", "2"},       {"MASTER_ADDR", "localhost"}};
  };
  Launcher worker(scratch, {program}, pod("1"));
  Launcher master(scratch, {program}, pod("0"));
  EXPECT_EQ(master.wait(), 0) << master.err();
  EXPECT_EQ(worker.wait(), 0) << worker.err();
  EXPECT_EQ(get(scratch / "3.txt"), "4 3\n");
}

}  // namespace
