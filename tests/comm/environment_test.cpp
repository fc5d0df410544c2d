#include "levin/comm/environment/environment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "levin/comm/environment/host_list.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/comm/environment/port.h"
#include "levin/comm/environment/variables.h"
#include "tests/support/error_of.h"

namespace levin::comm {
namespace {

using test::error_id;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Map = std::map<std::string, std::string>;

Environment read(const Map& values) { return read_environment(Variables(values)); }

Map with(Map values, const Map& more) {
  for (const auto& [name, value] : more) values[name] = value;
  return values;
}

std::string summary(const Environment& environment) {
  return fmt::format("{} {}/{} local {}/{} node {} at {}:{}", environment.launcher,
                     environment.rank.rank, environment.rank.world_size,
                     environment.rank.local_rank, environment.rank.local_world_size,
                     environment.node_rank, environment.master_address, environment.master_port);
}

// NOLINTBEGIN(bugprone-throwing-static-initialization): of a test that then ends
const Map kTorchrun = {
    {"RANK", "5"},       {"WORLD_SIZE", "8"},   {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "4"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "1234"}};
const Map kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Map kHydra = {
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Map kSlurm = {{"SLURM_PROCID", "6"},
                    {"SLURM_NTASKS", "7"},
                    {"SLURM_LOCALID", "0"},
                    {"SLURM_NODEID", "3"},
                    {"SLURM_JOB_ID", "42"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                    {"SLURM_STEP_NODELIST", "gpu[08-10],login"}};
const Map kPyTorchJob = {{"RANK", "1"},
                         {"WORLD_SIZE", "3"},
                         {"MASTER_ADDR", "job-master-0"},
                         {"MASTER_PORT", "23456"},
                         {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
const Map kTrainJob = {{"PET_NNODES", "2"},
                       {"PET_NPROC_PER_NODE", "4"},
                       {"PET_NODE_RANK", "1"},
                       {"PET_MASTER_ADDR", "job-node-0-0.job"},
                       {"PET_MASTER_PORT", "29400"}};
// NOLINTEND(bugprone-throwing-static-initialization)

TEST(Environment, IsAloneWhenNothingIsSet) {
  EXPECT_EQ(summary(read({{"HOME", "/root"}})), "alone 0/1 local 0/1 node 0 at :0");
}

TEST(Environment, ReadsEachLauncher) {
  const std::vector<std::pair<Map, std::string>> cases = {
      {kTorchrun, "torchrun 5/8 local 1/4 node 1 at n0:1234"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "torchrun 1/2 local 1/2 node 0 at 127.0.0.1:29500"},
      {kOpenMpi,
       "mpirun 3/4 local 3/4 node 0 at 127.0.0.1:" + std::to_string(derived_port("mpirun"))},
      {with(kHydra, {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "77"}}),
       "mpirun 2/4 local 0/2 node 1 at n0:77"},
      {kSlurm, "slurm 6/7 local 0/1 node 3 at gpu08:" + std::to_string(derived_port("42.0"))},
      {with(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_LOCALID", "1"}}),
       "slurm 1/7 local 1/2 node 0 at gpu08:" + std::to_string(derived_port("42.0"))},
      {kPyTorchJob, "kubeflow 1/3 local 0/1 node 1 at job-master-0:23456"},
      {kTrainJob, "kubeflow 1/2 local 0/1 node 1 at job-node-0-0.job:29400"},
      {with(kPyTorchJob, {{"WORLD_SIZE", "12"}, {"PET_NNODES", "3"}, {"PET_NODE_RANK", "1"}}),
       "kubeflow 1/3 local 0/1 node 1 at job-master-0:23456"},
  };
  for (const auto& [values, expected] : cases) EXPECT_EQ(summary(read(values)), expected);
}

TEST(Environment, TakesTheInnermostLauncher) {
  EXPECT_EQ(read(with(kSlurm, kTorchrun)).launcher, "torchrun");
  EXPECT_EQ(read(with(kPyTorchJob, kTorchrun)).launcher, "torchrun");
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).launcher, "mpirun");
  EXPECT_EQ(read(with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}})).launcher, "slurm");
}

TEST(Environment, ABatchScriptsOwnProgramIsAlone) {
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}}).launcher,
            "alone");
}

TEST(Environment, KeepsWhatTorchrunSaysOfRestarts) {
  const auto environment = read(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"},
                                                 {"TORCHELASTIC_RUN_ID", "job"},
                                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(environment.restart_count, 2);
  EXPECT_EQ(environment.run_id, "job");
  EXPECT_TRUE(environment.launcher_hosts_store);
  EXPECT_FALSE(read(kTorchrun).launcher_hosts_store);
}

TEST(Environment, APodSaysHowManyProcessesItWants) {
  EXPECT_EQ(read(kTrainJob).processes_per_node, 4);
  EXPECT_EQ(read(with(kTrainJob, {{"PET_NPROC_PER_NODE", "auto"}})).processes_per_node, 1);
}

TEST(Environment, NamesTheVariableThatIsNoNumber) {
  const std::vector<std::pair<Map, std::string>> cases = {
      {with(kTorchrun, {{"RANK", "five"}}),
       "comm.environment.number: RANK holds 'five', wanted an integer of at least 0"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}),
       "comm.environment.number: WORLD_SIZE holds '0', wanted an integer of at least 1"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}),
       "comm.environment.number: MASTER_PORT holds '70000', wanted an integer from 1 to 65535"},
      {with(kTorchrun, {{"LOCAL_RANK", "1 "}}),
       "comm.environment.number: LOCAL_RANK holds '1 ', wanted an integer of at least 0"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4x"}}),
       "comm.environment.number: OMPI_COMM_WORLD_SIZE holds '4x', wanted an integer of at least 1"},
      {with(kSlurm, {{"SLURM_NODEID", "-1"}}),
       "comm.environment.number: SLURM_NODEID holds '-1', wanted an integer of at least 0"},
      {with(kTrainJob, {{"PET_NNODES", "1:4"}}),
       "comm.environment.number: PET_NNODES holds '1:4', wanted one number; start an elastic job "
       "with levin run"},
  };
  for (const auto& [values, expected] : cases) {
    EXPECT_EQ(error_of([&] { read(values); }), expected);
  }
}

TEST(Environment, NamesTheVariableThatIsMissing) {
  const std::vector<std::pair<Map, std::string>> cases = {
      {{{"RANK", "0"}}, "RANK is set but WORLD_SIZE is not"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but RANK is not"},
      {{{"LOCAL_RANK", "0"}}, "LOCAL_RANK is set but WORLD_SIZE is not"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "2"}},
       "WORLD_SIZE of several hosts is set but MASTER_ADDR is not"},
      {{{"PMI_RANK", "0"}}, "PMI_RANK is set but PMI_SIZE is not"},
      {{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}, "SLURM_PROCID is set but SLURM_NTASKS is"},
      {{{"PET_NNODES", "2"}}, "PET_NNODES or WORLD_SIZE of a pod is set but RANK is not"},
      {{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}}, "PET_NODE_RANK is set but MASTER_ADDR is"},
  };
  for (const auto& [values, expected] : cases) {
    EXPECT_THAT(error_of([&] { read(values); }),
                HasSubstr("comm.environment.missing: " + expected));
  }
}

TEST(Environment, RefusesARankOutsideItsWorld) {
  EXPECT_THAT(error_of([] { read(with(kTorchrun, {{"RANK", "8"}})); }),
              HasSubstr("comm.environment.rank: torchrun says rank 8 of 8 processes, wanted a rank "
                        "from 0 to 7"));
  EXPECT_EQ(error_id([] { read(with(kTorchrun, {{"LOCAL_RANK", "4"}})); }),
            "comm.environment.rank");
  EXPECT_EQ(error_id([] { read(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}})); }),
            "comm.environment.rank");
  EXPECT_EQ(error_id([] { read(with(kSlurm, {{"SLURM_NODEID", "4"}})); }), "comm.environment.rank");
}

TEST(Environment, AsksForAMasterWhereNobodyKnowsIt) {
  EXPECT_THAT(error_of([] { read(kHydra); }),
              HasSubstr("comm.environment.master: mpirun started ranks on several hosts"));
  Map slurm = kSlurm;
  slurm.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(error_id([&] { read(slurm); }), "comm.environment.master");
}

TEST(HostList, ExpandsSlurmsBrackets) {
  EXPECT_THAT(expand_host_list("a[1-3,7],b"), ElementsAre("a1", "a2", "a3", "a7", "b"));
  EXPECT_THAT(expand_host_list("n[08-10]"), ElementsAre("n08", "n09", "n10"));
  EXPECT_THAT(expand_host_list("r[1-2]n[0,5]-ib"),
              ElementsAre("r1n0-ib", "r1n5-ib", "r2n0-ib", "r2n5-ib"));
  EXPECT_THAT(expand_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
}

TEST(HostList, RefusesWhatIsNone) {
  for (const char* list : {"", "a,", "a[1-", "a[1-3", "a[x]", "a[3-1]", "a]", "a[]"}) {
    EXPECT_EQ(error_id([&] { expand_host_list(list); }), "comm.environment.hosts") << list;
  }
  for (const char* list : {"", "2(x", "2(x3", "two", "2(xy)"}) {
    EXPECT_EQ(error_id([&] { expand_counts(list); }), "comm.environment.hosts") << list;
  }
}

TEST(HostList, RefusesWhatMultipliesWithoutAnEnd) {
  std::string many = "n";
  for (int i = 0; i < 10; ++i) many += "[1-1000]";
  std::string deep = "n";
  for (int i = 0; i < 100'000; ++i) deep += "[1]";
  const std::string wide = "n[" + std::string(1'000'000, '0') + "1-9]";
  std::string counts = "1(x1000000)";
  for (int i = 0; i < 1000; ++i) counts += ",1(x1000000)";
  for (const std::string& list :
       {std::string("n[0-9223372036854775807]"), many, deep, wide, std::string(300, 'n')}) {
    EXPECT_EQ(error_id([&] { expand_host_list(list); }), "comm.environment.hosts")
        << list.substr(0, 50);
  }
  EXPECT_THAT(error_of([&] { expand_host_list(wide); }), HasSubstr("too long; shorten it"));
  EXPECT_THAT(error_of([] { expand_host_list("a[3-1]"); }), HasSubstr("does not increase"));
  EXPECT_EQ(error_id([&] { expand_counts(counts); }), "comm.environment.hosts");
  EXPECT_EQ(expand_host_list("n[0-64][0-999]").size(), 65U * 1000U);
}

TEST(HostList, WordsOfAListDoNotReachTheTerminal) {
  try {
    expand_host_list("a[\x1b[2J]");
    ADD_FAILURE() << "it was taken";
  } catch (const levin::Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
    EXPECT_THAT(error.what(), HasSubstr("\\x1b"));
  }
}

TEST(Port, IsTheSameForTheSameJob) {
  EXPECT_EQ(derived_port("42.0"), derived_port("42.0"));
  EXPECT_NE(derived_port("42.0"), derived_port("42.1"));
  for (int job = 0; job < 1000; ++job) {
    const int64_t port = derived_port(std::to_string(job));
    ASSERT_GE(port, 10000);
    ASSERT_LT(port, 30000);
  }
}

TEST(Port, ATakenOneIsAClearError) {
  const ListeningSocket socket = listen_on(0, "MASTER_PORT");
  EXPECT_GT(socket.port(), 0);
  EXPECT_EQ(error_of([&] { listen_on(socket.port(), "MASTER_PORT"); }),
            fmt::format("comm.environment.port: port {} of this host is taken by another process; "
                        "choose a free one by MASTER_PORT",
                        socket.port()));
}

TEST(WaitForName, ReturnsForANameThatResolves) {
  EXPECT_EQ(error_id([] { wait_for_name("localhost", std::chrono::seconds(5)); }), "no error");
}

TEST(WaitForName, SaysWhatItWaitedFor) {
  EXPECT_THAT(
      error_of([] { wait_for_name("no-such-host.invalid", std::chrono::milliseconds(200)); }),
      HasSubstr("comm.environment.name: the master's name 'no-such-host.invalid' did not resolve "
                "within 0.2 s"));
}

TEST(Kubernetes, IsKnownByItsVariable) {
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_FALSE(in_kubernetes());
  ::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  EXPECT_TRUE(in_kubernetes());
  ::unsetenv("KUBERNETES_SERVICE_HOST");
}

}  // namespace
}  // namespace levin::comm
