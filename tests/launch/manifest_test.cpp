#include "levin/launch/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"

namespace levin::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const LaunchOptions kOptions = {.nnodes = {3, 3},
                                .nproc_per_node = 4,
                                .max_restarts = 2,
                                .command = {"bin/Train_2", "--name", "it's \"x\""}};

TEST(Manifest, APyTorchJobHasAMasterAndWorkers) {
  EXPECT_EQ(pytorch_job(kOptions), R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train-2
spec:
  nprocPerNode: "4"
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: ExitCode
      template:
        spec:
          terminationGracePeriodSeconds: 45
          containers:
            - name: pytorch
              image: IMAGE  # with levin and the program
              command: ["levin","run","--max-restarts","2","--","bin/Train_2","--name","it's \"x\""]
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        spec:
          terminationGracePeriodSeconds: 45
          containers:
            - name: pytorch
              image: IMAGE  # with levin and the program
              command: ["levin","run","--max-restarts","2","--","bin/Train_2","--name","it's \"x\""]
)");
}

TEST(Manifest, AnElasticJobHasWorkersOnly) {
  LaunchOptions options = kOptions;
  options.nnodes = {1, 3};
  EXPECT_THAT(pytorch_job(options),
              AllOf(HasSubstr("minReplicas: 1\n    maxReplicas: 3\n    maxRestarts: 2\n"),
                    HasSubstr("Worker:\n      replicas: 3\n"), Not(HasSubstr("Master:"))));
}

TEST(Manifest, AnSbatchScriptSavesAndQueuesAgain) {
  const std::string text = sbatch_script(kOptions);
  EXPECT_THAT(text, AllOf(HasSubstr("#SBATCH --nodes=3\n"), HasSubstr("#SBATCH --signal=USR1@90\n"),
                          HasSubstr("#SBATCH --requeue\n")));
  EXPECT_THAT(text, HasSubstr("srun levin run --nnodes \"$SLURM_NNODES\" --rdzv-endpoint "
                              "\"$head:$port\" --rdzv-id \"$SLURM_JOB_ID\" -n 4 --max-restarts 2 "
                              "-- bin/Train_2 --name 'it'\\''s \"x\"'\n"));
}

TEST(Manifest, TheShellTakesTheSbatchScript) {
  const test::Scratch scratch;
  test::put(scratch / "job.sh", sbatch_script(kOptions));
  EXPECT_EQ(std::system(("sh -n " + (scratch / "job.sh").string()).c_str()), 0);
}

TEST(Manifest, NeedsAProgram) {
  EXPECT_EQ(test::error_id([] { pytorch_job({}); }), "launch.options");
  EXPECT_EQ(test::error_id([] { sbatch_script({}); }), "launch.options");
}

TEST(Manifest, TheCommandPrintsOneOrBothAndStartsNothing) {
  const test::Scratch scratch;
  const std::string program = test::script(scratch, "rank.sh", "touch ran");
  test::Launcher both(scratch, {"--print-manifest", "-n", "2", program});
  EXPECT_EQ(both.wait(), 0) << both.err();
  EXPECT_THAT(both.out(), AllOf(HasSubstr("kind: PyTorchJob"), HasSubstr("#SBATCH")));
  test::Launcher one(scratch, {"--print-manifest=sbatch", "-n", "2", program});
  EXPECT_EQ(one.wait(), 0);
  EXPECT_THAT(one.out(), ::testing::StartsWith("#!/bin/bash\n"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "ran"));
}

}  // namespace
}  // namespace levin::launch
