// The examples as they stand, under every way to start two processes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/comm/environment/port.h"
#include "tests/hosts/examples.h"
#include "tests/hosts/program.h"
#include "tests/support/places.h"

namespace {

using namespace levin::test;  // NOLINT

std::string free_port() { return std::to_string(levin::comm::listen_on(0, "").port()); }

/// A Python that has torch, of those that scripts/ makes, or the system's.
Words torchrun() {
  const std::string deps = levin::test::source_dir() + "/.deps/";
  const Scratch scratch;
  for (const std::string& python :
       {deps + "bench/bin/python", deps + "oracle/bin/python", path_of_command("python3")}) {
    if (!std::filesystem::exists(python)) continue;
    Program look(scratch, {python, "-c",
                           "import importlib.util, sys; "
                           "sys.exit(importlib.util.find_spec('torch') is None)"});
    if (look.wait() != 0) continue;
    return {python,
            "-m",
            "torch.distributed.run",
            "--no-python",
            "--nproc-per-node",
            "2",
            "--master-port",
            free_port()};
  }
  return {};
}

Words mpirun(const std::string& path) {
  if (path.empty()) return {};
  return {path, "-n", "2"};
}

struct Launch {
  std::string name;
  std::function<Words()> launcher;  // empty words: it is not here
  Example example;
  Words more = {};
};
std::ostream& operator<<(std::ostream& out, const Launch& launch) { return out << launch.name; }

std::vector<Launch> launches() {
  const auto openmpi = [] { return mpirun(LEVIN_MPIRUN_OPENMPI); };
  const auto mpich = [] { return mpirun(LEVIN_MPIRUN_MPICH); };
  const auto run = [] { return Words{levin_command(), "run", "-n", "2"}; };
  std::vector<Launch> all;
  for (const Example& example : {ddp(), classifier()}) {
    all.push_back({"Torchrun" + example.name, torchrun, example});
    all.push_back({"LevinRun" + example.name, run, example});
    for (const auto& [name, launcher] : {std::pair("OpenMpi", std::function<Words()>(openmpi)),
                                         std::pair("Mpich", std::function<Words()>(mpich))}) {
      all.push_back({name + example.name, launcher, example});
      all.push_back({name + example.name + "OverMpi", launcher, example, {"--backend", "mpi"}});
    }
  }
  return all;
}

class Launchers : public ::testing::TestWithParam<Launch> {};

TEST_P(Launchers, EndWellWithThePromisedLineOnce) {
  const Launch& launch = GetParam();
  Words words = launch.launcher();
  if (words.empty()) GTEST_SKIP() << "no launcher of this kind is here";
  for (const Words& part : {launch.example.words, launch.more}) {
    words.insert(words.end(), part.begin(), part.end());
  }
  const Scratch scratch;
  Program program(scratch, words,
                  {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                   {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                   {"OMPI_MCA_rmaps_base_oversubscribe", "1"}});
  const int code = program.wait();
  if (lacks_data(program)) GTEST_SKIP() << "Fashion-MNIST is not here";
  ASSERT_EQ(code, 0) << program.out() << program.err();
  EXPECT_TRUE(launch.example.kept_its_promise(program)) << program.out() << program.err();
  EXPECT_TRUE(soon([&] { return program.alive().empty(); }));
}

INSTANTIATE_TEST_SUITE_P(Hosts, Launchers, ::testing::ValuesIn(launches()),
                         [](const auto& info) { return info.param.name; });

/// The variables of each of two processes, for launchers that cannot be here.
struct ByHand {
  std::string name;
  std::function<Settings(const std::string& rank, const std::string& port)> variables;
};
std::ostream& operator<<(std::ostream& out, const ByHand& launch) { return out << launch.name; }

class LaunchersByHand : public ::testing::TestWithParam<ByHand> {};

TEST_P(LaunchersByHand, EndWellWithThePromisedLineOnce) {
  const Scratch scratch;
  const std::string port = free_port();
  const Example example = ddp();
  Program zero(scratch, example.words, GetParam().variables("0", port));
  Program one(scratch, example.words, GetParam().variables("1", port));
  const int code = zero.wait();
  if (lacks_data(zero)) GTEST_SKIP() << "Fashion-MNIST is not here";
  EXPECT_EQ(code, 0) << zero.err();
  EXPECT_EQ(one.wait(), 0) << one.err();
  EXPECT_TRUE(example.kept_its_promise(zero)) << zero.out() << zero.err();
  EXPECT_EQ(one.out(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, LaunchersByHand,
    ::testing::Values(ByHand{"Srun",
                             [](const std::string& rank, const std::string& port) {
                               return Settings{{"SLURM_JOB_ID", "7001"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_PROCID", rank},
                                               {"SLURM_LOCALID", rank},
                                               {"SLURM_NODEID", "0"},
                                               {"SLURM_NTASKS", "2"},
                                               {"SLURM_STEP_NUM_TASKS", "2"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                               {"SLURM_STEP_NODELIST", "node3"},
                                               {"MASTER_PORT", port}};
                             }},
                      ByHand{"SrunOnTwoNodes",
                             [](const std::string& rank, const std::string& port) {
                               return Settings{{"SLURM_JOB_ID", "7002"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_PROCID", rank},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_NODEID", rank},
                                               {"SLURM_STEP_NUM_TASKS", "2"},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                               {"MASTER_PORT", port}};
                             }},
                      ByHand{"PyTorchJob",
                             [](const std::string& rank, const std::string& port) {
                               return Settings{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {"RANK", rank},
                                               {"WORLD_SIZE", "2"},
                                               {"MASTER_PORT", port},
                                               {"MASTER_ADDR", "localhost"}};
                             }},
                      ByHand{"PyTorchJobOfPet",
                             [](const std::string& rank, const std::string& port) {
                               return Settings{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                                               {"PET_NNODES", "2"},
                                               {"PET_NPROC_PER_NODE", "1"},
                                               {"PET_NODE_RANK", rank},
                                               {"PET_MASTER_PORT", port},
                                               {"PET_MASTER_ADDR", "localhost"}};
                             }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
