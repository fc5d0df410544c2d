#include "levin/launch/manifest/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"

namespace levin::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LaunchOptions on_three_nodes() {
  return {.nnodes = {3, 3},
          .nproc_per_node = 4,
          .max_restarts = 2,
          .command = {"bin/Train_2", "--name", "it's \"x\""}};
}

TEST(Manifest, APyTorchJobHasAMasterAndWorkers) {
  const std::string replica = R"(
      restartPolicy: ExitCode
      template:
        spec:
          terminationGracePeriodSeconds: 45
          containers:
            - name: pytorch
              image: registry/train:1
              command: ["levin","run","--max-restarts","2","--","bin/Train_2","--name","it's \"x\""]
              resources:
                limits:
                  nvidia.com/gpu: 4
              volumeMounts:
                - name: shm
                  mountPath: /dev/shm
          volumes:
            - name: shm
              emptyDir:
                medium: Memory
)";
  EXPECT_EQ(pytorch_job(on_three_nodes(), {.image = "registry/train:1", .gpus = true}),
            R"(apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: train-2
spec:
  nprocPerNode: "4"
  pytorchReplicaSpecs:
    Master:
      replicas: 1)" +
                replica + R"(    Worker:
      replicas: 2)" +
                replica);
}

TEST(Manifest, AJobOnCpusTakesNoGpusAndSaysWhatIsMissing) {
  EXPECT_THAT(
      pytorch_job(on_three_nodes()),
      AllOf(StartsWith("# IMAGE: "), HasSubstr("image: IMAGE\n"), Not(HasSubstr("nvidia.com"))));
}

TEST(Manifest, OneRankOfAPodNeedsNoSharedMemory) {
  LaunchOptions options = on_three_nodes();
  options.nproc_per_node = 1;
  EXPECT_THAT(pytorch_job(options), Not(HasSubstr("/dev/shm")));
}

TEST(Manifest, AnElasticJobHasWorkersOnly) {
  LaunchOptions options = on_three_nodes();
  options.nnodes = {1, 3};
  EXPECT_THAT(pytorch_job(options),
              AllOf(HasSubstr("minReplicas: 1\n    maxReplicas: 3\n    maxRestarts: 2\n"),
                    HasSubstr("Worker:\n      replicas: 3\n"), Not(HasSubstr("Master:"))));
}

LaunchOptions on_tpus() { return {.max_restarts = 2, .command = {"bin/Train_2", "--epochs", "3"}}; }

TEST(Manifest, AJobSetRunsOneRankOnEachHostOfASlice) {
  EXPECT_EQ(job_set(on_tpus(), {.image = "registry/train:1", .tpu_topology = "v5e:4x4"}),
            R"(# For a node pool of ct5lp-hightpu-4t with the topology 4x4: 4 hosts of 4 chips.
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train-2
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool
spec:
  failurePolicy:
    maxRestarts: 2
    rules:
      - name: programFailed
        action: FailJobSet
        onJobFailureReasons: ["PodFailurePolicy"]
  replicatedJobs:
    - name: slice
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          completions: 4
          parallelism: 4
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  containerName: levin
                  operator: NotIn
                  values: [137,138,143]
          template:
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: 45
              nodeSelector:
                cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice
                cloud.google.com/gke-tpu-topology: "4x4"
              containers:
                - name: levin
                  image: registry/train:1
                  command: ["levin","run","--nnodes","4","--rdzv-endpoint","train-2-slice-0-0.train-2:29400","--max-restarts","2","--","bin/Train_2","--epochs","3"]
                  resources:
                    limits:
                      google.com/tpu: 4
                  env:
                    - name: PET_NODE_RANK
                      valueFrom:
                        fieldRef:
                          fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"
)");
}

TEST(Manifest, AJobSetOnOneHostMeetsNobody) {
  EXPECT_THAT(
      job_set(on_tpus(), {.tpu_topology = "v6e:2x4"}),
      AllOf(HasSubstr("google.com/tpu: 8\n"), HasSubstr("completions: 1\n"), Not(HasSubstr("rdzv")),
            Not(HasSubstr("PET_NODE_RANK")), Not(HasSubstr("exclusive-topology"))));
}

TEST(Manifest, AJobSetTakesWhatASliceIs) {
  const auto id_of = [](LaunchOptions options, ManifestOptions manifest) {
    manifest.tpu_topology = "v5p:2x2x4";
    options.command = {"train"};
    return test::error_id([&] { job_set(options, manifest); });
  };
  EXPECT_EQ(id_of({.nnodes = {4, 4}}, {}), "no error");
  EXPECT_EQ(id_of({.nnodes = {3, 3}}, {}), "launch.tpu");
  EXPECT_EQ(id_of({.nnodes = {1, 4}}, {}), "launch.tpu");
  EXPECT_EQ(id_of({.nproc_per_node = 4}, {}), "launch.tpu");
  EXPECT_EQ(id_of({}, {.gpus = true}), "launch.tpu");
}

TEST(Manifest, NodesOfAJobMeetWithASecret) {
  const std::string secret =
      "apiVersion: v1\nkind: Secret\nmetadata:\n  name: train-2-token\nstringData:\n"
      "  token: abc\n---\n";
  const std::string variable = R"(- name: LEVIN_JOB_TOKEN
                  valueFrom:
                    secretKeyRef:
                      name: train-2-token
                      key: token
)";
  EXPECT_THAT(pytorch_job(on_three_nodes(), {.token = "abc"}),
              AllOf(StartsWith(secret), HasSubstr(variable)));
  const std::string slice = job_set(on_tpus(), {.tpu_topology = "v5e:4x4", .token = "abc"});
  EXPECT_THAT(slice, AllOf(StartsWith(secret), HasSubstr("- name: LEVIN_JOB_TOKEN\n")));
  for (const std::string& alone :
       {pytorch_job({.command = {"train"}}, {.token = "abc"}),
        job_set(on_tpus(), {.tpu_topology = "v6e:2x4", .token = "abc"})}) {
    EXPECT_THAT(alone, AllOf(Not(HasSubstr("TOKEN")), Not(HasSubstr("abc"))));
  }
  EXPECT_THAT(sbatch_script(on_three_nodes()),
              HasSubstr("\nexport LEVIN_JOB_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')\n"
                        "srun "));
}

TEST(Manifest, AProgramsNameBecomesALabel) {
  const auto name_of = [](const char* program) { return detail::job_name({.command = {program}}); };
  EXPECT_EQ(name_of("bin/Train_2.sh"), "train-2-sh");
  EXPECT_EQ(name_of("01_classifier"), "j01-classifier");
  EXPECT_EQ(name_of("__"), "levin");
  EXPECT_EQ(name_of((std::string(39, 'a') + "_b").c_str()), std::string(39, 'a'));
}

TEST(Manifest, SbatchGivesEachRankAGpu) {
  EXPECT_THAT(sbatch_script(on_three_nodes(), {.gpus = true}),
              HasSubstr("\n#SBATCH --gpus-per-node=4\n"));
}

TEST(Manifest, AnSbatchScriptSavesAndQueuesAgain) {
  const std::string text = sbatch_script(on_three_nodes());
  EXPECT_THAT(text, AllOf(HasSubstr("#SBATCH --nodes=3\n"), HasSubstr("#SBATCH --signal=USR1@90\n"),
                          HasSubstr("#SBATCH --requeue\n")));
  EXPECT_THAT(text, HasSubstr("srun levin run --nnodes \"$SLURM_NNODES\" --rdzv-endpoint "
                              "\"$head:$port\" --rdzv-id \"$SLURM_JOB_ID\" -n 4 --max-restarts 2 "
                              "-- bin/Train_2 --name 'it'\\''s \"x\"'\n"));
}

TEST(Manifest, TheShellTakesTheSbatchScript) {
  const test::Scratch scratch;
  test::put(scratch / "job.sh", sbatch_script(on_three_nodes()));
  const std::string command = "sh -n " + (scratch / "job.sh").string();
  EXPECT_EQ(std::system(command.c_str()), 0);  // NOLINT: no threads here
}

TEST(Manifest, NeedsAProgram) {
  EXPECT_EQ(test::error_id([] { pytorch_job({}); }), "launch.options");
  EXPECT_EQ(test::error_id([] { sbatch_script({}); }), "launch.options");
  EXPECT_EQ(test::error_id([] { job_set({}, {.tpu_topology = "v5e:4x4"}); }), "launch.options");
  EXPECT_EQ(test::error_id([] { pytorch_job({.nproc_per_node = 0, .command = {"train"}}); }),
            "launch.options");
}

TEST(Manifest, TheCommandPrintsOneOrBothAndStartsNothing) {
  const test::Scratch scratch;
  const std::string program = test::script(scratch, "rank.sh", "touch ran");
  test::Launcher both(scratch, {"--print-manifest", "-n", "2", program});
  EXPECT_EQ(both.wait(), 0) << both.err();
  EXPECT_THAT(both.out(), AllOf(HasSubstr("kind: PyTorchJob"), HasSubstr("#SBATCH")));
  test::Launcher one(scratch, {"--print-manifest=sbatch", "-n", "2", program});
  EXPECT_EQ(one.wait(), 0);
  EXPECT_THAT(one.out(), StartsWith("#!/bin/bash\n"));
  EXPECT_FALSE(std::filesystem::exists(scratch / "ran"));
}

TEST(Manifest, TheCommandPrintsAJobSetForASlice) {
  const test::Scratch scratch;
  const test::Words slice = {"--print-manifest", "--tpu-topology", "v5e:4x4",
                             "--image",          "train:1",        "./train"};
  test::Launcher run(scratch, slice);
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_THAT(run.out(), AllOf(HasSubstr("kind: JobSet\n"), HasSubstr("image: train:1\n"),
                               Not(HasSubstr("#SBATCH"))));
}

TEST(Manifest, TheCommandRefusesFlagsThatDoNotGoTogether) {
  const test::Scratch scratch;
  for (const test::Words& words : std::vector<test::Words>{
           {"--gpus", "./train"},
           {"--image", "train:1", "./train"},
           {"--print-manifest=pod", "./train"},
           {"--print-manifest=jobset", "./train"},
           {"--print-manifest=sbatch", "--tpu-topology", "v5e:4x4", "./train"}}) {
    test::Launcher run(scratch, words);
    EXPECT_EQ(run.wait(), 2);
    EXPECT_THAT(run.err(), HasSubstr("tools.run: "));
  }
}

}  // namespace
}  // namespace levin::launch
