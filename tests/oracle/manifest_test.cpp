// What `levin run --print-manifest` writes, held against the schemas that Kubernetes and the
// projects publish: those of Python packages, and the CustomResourceDefinitions of
// .deps/kubernetes.
#include "levin/launch/manifest/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/oracle/python.h"
#include "tests/support/places.h"

namespace levin::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

LaunchOptions with(NodeRange nodes, int64_t num_processes) {
  return {.nnodes = nodes,
          .nproc_per_node = num_processes,
          .max_restarts = 2,
          .shutdown_timeout_s = 30.5,
          .command = {"bin/Train_2", "--name", "it's: \"x\" # no\n"}};
}

std::string manifest_of(const std::string& topology) {
  return job_set(with({1, 1}, 1), {.image = "train:1", .tpu_topology = topology});
}

class ManifestSchemas : public test::PythonTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    test::PythonTest::SetUp();
    if (IsSkipped() || GetParam() == std::string("packages")) return;
    const char* given = std::getenv("LEVIN_KUBERNETES_SCHEMAS");
    definitions_ = given != nullptr ? given : levin::test::source_dir() + "/.deps/kubernetes";
    if (!fs::exists(definitions_)) {
      GTEST_SKIP() << "no " << definitions_ << "; scripts/kubernetes_schemas.sh fetches it";
    }
  }

  /// What does not fit; nothing when all does.
  std::string problem_of(const std::string& manifest) const {
    std::ofstream(file("manifest.yaml")) << manifest;
    const std::string folder = definitions_.empty() ? "" : " '" + definitions_.string() + "'";
    std::string output;
    const int code =
        run("check_manifest.py", "'" + file("manifest.yaml").string() + "'" + folder, &output);
    return code == 0 ? "" : output;
  }

 private:
  fs::path definitions_;
};

TEST_P(ManifestSchemas, TakeThePyTorchJobs) {
  std::string documents;
  for (const NodeRange nodes : {NodeRange{1, 1}, NodeRange{4, 4}, NodeRange{1, 4}}) {
    for (const int64_t num_processes : {1, 8}) {
      for (const bool gpus : {false, true}) {
        documents += "---\n" + pytorch_job(with(nodes, num_processes), {.gpus = gpus});
      }
    }
  }
  EXPECT_EQ(problem_of(documents), "");
}

TEST_P(ManifestSchemas, TakeTheJobSetsOfSlices) {
  std::string documents;
  for (const char* topology :
       {"v4:2x2x1", "v4:2x2x2", "v5e:1x1", "v5e:4x4", "v5p:4x4x8", "v6e:2x4", "tpu7x:2x2x2"}) {
    documents += "---\n" + manifest_of(topology);
  }
  EXPECT_EQ(problem_of(documents), "");
}

struct Wrong {
  const char* right;
  const char* wrong;
  const char* said;  ///< a part of it
};

TEST_P(ManifestSchemas, RefuseWhatIsWrong) {
  const std::string gpus = pytorch_job(with({1, 4}, 8), {.gpus = true});
  const std::string slice = manifest_of("v5e:4x4");
  const std::vector<std::pair<std::string, Wrong>> cases = {
      {gpus, {"nprocPerNode: \"8\"", "nprocPerNode: 8", "8 is not of type 'string'"}},
      {gpus, {"replicas: 4", "replicas: four", "'four' is not of type 'integer'"}},
      {gpus, {"rdzvBackend", "rdzvBackends", "'rdzvBackends' was unexpected"}},
      {gpus, {"volumeMounts", "volumeMount", "'volumeMount' was unexpected"}},
      {gpus, {"pytorchReplicaSpecs", "replicaSpecs", "'replicaSpecs' was unexpected"}},
      {gpus, {"kind: PyTorchJob", "kind: PytorchJob", "no schema for kubeflow.org/v1 PytorchJob"}},
      {slice, {"replicatedJobs", "replicatedJob", "'replicatedJob' was unexpected"}},
      {slice, {"onJobFailureReasons", "onFailureReasons", "'onFailureReasons' was unexpected"}},
      {slice, {"backoffLimit: 0", "backoffLimit: none", "'none' is not of type 'integer'"}},
      {slice, {"containerName", "container", "'container' was unexpected"}},
      {slice, {"google.com/tpu: 4", "google.com/tpu: [4]", "[4] is not "}},
      {slice, {"fieldPath", "path", "'path' was unexpected"}},
      {slice, {"v1alpha2", "v1alpha1", "no schema for jobset.x-k8s.io/v1alpha1 JobSet"}},
  };
  std::string documents;
  for (const auto& [manifest, change] : cases) {
    std::string text = manifest;
    const size_t place = text.find(change.right);
    ASSERT_NE(place, std::string::npos) << change.right;
    documents += "---\n" + text.replace(place, std::string(change.right).size(), change.wrong);
  }
  const std::string problem = problem_of(documents);
  for (const auto& [manifest, change] : cases) EXPECT_THAT(problem, HasSubstr(change.said));
}

TEST_P(ManifestSchemas, RefuseAnEmptyManifest) { EXPECT_NE(problem_of(""), ""); }

INSTANTIATE_TEST_SUITE_P(Of, ManifestSchemas, ::testing::Values("packages", "definitions"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace levin::launch
