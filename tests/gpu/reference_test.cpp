// 1: bf16-mixed and 16-mixed give what PyTorch gives on the same device, loss scale and left-out steps included.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "levin/accelerator/engine/engine.h"
#include "levin/checkpoint/checkpoint.h"
#include "tests/gpu/tasks.h"
#include "tests/support/places.h"

namespace levin::test::gpu {
namespace reference_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMixedSteps = 16;
constexpr int64_t kBatch = 8;
const optim::GradScalerOptions kScaler = {.init_scale = 1024.0, .growth_interval = 4};

struct Mixed {
  std::string name;
  std::string net = "mlp";
  std::string precision = "bf16";  ///< as Accelerate has it
  std::string optimizer = "SGD";
  double lr = 0.1;
  double max_norm = 0.0;                ///< 0: gradients are not clipped
  std::vector<int64_t> overflows = {};  ///< steps whose loss is infinite

  bool is_scaled() const { return precision == "fp16"; }
  /// A product of two weights of another last bit may be rounded to the half type's next number.
  double tolerance() const { return is_scaled() ? 4e-3 : 2e-2; }
};
void PrintTo(const Mixed& of, std::ostream* out) { *out << of.name; }

torch::nn::Sequential network(const std::string& name) {
  namespace nn = torch::nn;
  torch::manual_seed(5);
  if (name == "mlp") {
    return nn::Sequential(nn::Linear(6, 16), nn::ReLU(), nn::Linear(16, 3));
  }
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 8, 3).padding(1).bias(false)),
                        nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(), nn::Linear(8 * 6 * 6, 3));
}

/// Of one case: "inputs" and "labels".
State data_of(const Mixed& of) {
  const auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{8});
  std::vector<int64_t> sizes = {kMixedSteps, kBatch, 6};
  if (of.net != "mlp") sizes = {kMixedSteps, kBatch, 2, 6, 6};
  State data;
  data.set("inputs", torch::randn(sizes, random));
  data.set("labels", torch::randint(3, {kMixedSteps, kBatch}, random, torch::kLong));
  return data;
}

/// What this run leaves, and the scale of each step's loss.
struct MixedRun {
  Trained trained;
  std::vector<double> scales;
};

MixedRun train(const Mixed& of, const State& data) {
  const auto net = network(of.net);
  Accelerator accelerator({.mixed_precision = of.precision,
                           .accelerator = gpu::accelerator(),
                           .engine = {.scaler = kScaler}});
  const OptimizerConfig config = of.optimizer == "SGD" ? OptimizerConfig(optim::sgd({.lr = of.lr}))
                                                       : optim::adamw({.lr = of.lr});
  auto [model, optimizer] = accelerator.prepare(net, config);
  MixedRun run;
  for (int64_t step = 0; step < kMixedSteps; ++step) {
    optimizer.zero_grad();
    const at::Tensor outputs = model->forward(data.tensor("inputs")[step].to(device()));
    at::Tensor loss =
        torch::nn::functional::cross_entropy(outputs, data.tensor("labels")[step].to(device()));
    run.trained.losses.push_back(loss.item<double>());
    const bool overflows = std::ranges::find(of.overflows, step) != of.overflows.end();
    if (overflows) loss = loss * std::numeric_limits<double>::infinity();
    accelerator.backward(loss);
    if (of.max_norm > 0) accelerator.clip_grad_norm(of.max_norm);
    optimizer.step();
    EXPECT_EQ(accelerator.optimizer_step_was_skipped(), overflows) << "step " << step;
    const auto* scaler = engine_of(accelerator).stepping().scaler();
    run.scales.push_back(scaler == nullptr ? 1.0 : scaler->get_scale());
  }
  run.trained.weights = on_cpu(*net);
  return run;
}

/// Python with torch for this device; "" where there is none.
std::string python() {
  if (const char* given = std::getenv("LEVIN_ORACLE_PYTHON")) return given;
  const std::string oracle = source_dir() + "/.deps/oracle/bin/python";
  if (is_dry_run()) return fs::exists(oracle) ? oracle : "";
  return "python3";
}

std::vector<Mixed> cases() {
  return {{.name = "Bf16"},
          {.name = "Bf16AdamW", .optimizer = "AdamW", .lr = 0.01},
          {.name = "Bf16Convolution", .net = "conv", .lr = 0.01},
          {.name = "Fp16", .precision = "fp16"},
          {.name = "Fp16WithOverflows", .precision = "fp16", .overflows = {3, 4, 11}},
          {.name = "Fp16ClippedWithOverflows",
           .precision = "fp16",
           .max_norm = 0.5,
           .overflows = {3, 4, 11}},
          {.name = "Fp16AdamW",
           .precision = "fp16",
           .optimizer = "AdamW",
           .lr = 0.01,
           .overflows = {5}},
          {.name = "Fp16Convolution",
           .net = "conv",
           .precision = "fp16",
           .lr = 0.01,
           .overflows = {3}}};
}

void write_case(const Mixed& of, const fs::path& folder) {
  fs::create_directories(folder);
  State tensors = data_of(of);
  const State initial = on_cpu(*network(of.net));
  for (const auto& [name, value] : initial.values()) tensors.set(name, initial.tensor(name));
  save_weights(folder / "tensors.safetensors", tensors);
  Json scaler = nullptr;
  if (of.is_scaled()) {
    scaler = {{"init_scale", kScaler.init_scale}, {"growth_interval", kScaler.growth_interval}};
  }
  const Json wanted = {{"device", is_dry_run() ? "cpu" : "cuda"},
                       {"net", of.net},
                       {"dtype", of.is_scaled() ? "float16" : "bfloat16"},
                       {"optimizer", of.optimizer},
                       {"lr", of.lr},
                       {"max_norm", of.max_norm},
                       {"overflows", of.overflows},
                       {"scaler", scaler}};
  put(folder / "case.json", wanted.dump());
}

/// Of all cases by one interpreter, which takes longer to start than they do. {"error": text} for one that it
/// did not come to.
std::map<std::string, Json> computed_references() {
  const Scratch scratch;
  std::string folders;
  for (const Mixed& of : cases()) {
    write_case(of, scratch / of.name);
    folders += fmt::format(" '{}'", (scratch / of.name).string());
  }
  const std::string command =
      fmt::format("'{}' '{}/tests/gpu/reference.py'{} > '{}' 2>&1", python(), source_dir(), folders,
                  (scratch / "printed").string());
  const int code = std::system(command.c_str());
  std::map<std::string, Json> all;
  for (const Mixed& of : cases()) {
    const fs::path file = scratch / of.name / "reference.json";
    all[of.name] =
        fs::exists(file)
            ? Json::parse(get(file))
            : Json{{"error", fmt::format("code {}: {}", code, get(scratch / "printed"))}};
  }
  return all;
}

const Json& reference_of(const Mixed& of) {
  static const std::map<std::string, Json> all = computed_references();
  return all.at(of.name);
}

class Gpu1Reference : public OnGpu, public ::testing::WithParamInterface<Mixed> {};

TEST_P(Gpu1Reference, IsWhatPyTorchGives) {
  if (python().empty()) GTEST_SKIP() << "no Python with torch; make oracle makes one";
  const Mixed& of = GetParam();
  const MixedRun run = train(of, data_of(of));
  const Json& reference = reference_of(of);
  if (reference.contains("error")) {
    const std::string error = reference["error"];
    if (error.find("No module named 'torch'") != std::string::npos) {
      GTEST_SKIP() << python() << " has no torch";
    }
    FAIL() << error;
  }
  Trained wanted{.losses = reference["losses"].get<std::vector<double>>()};
  EXPECT_NEAR(run.trained.losses.front(), wanted.losses.front(), 1e-5) << "the first step";
  for (const auto& [name, numbers] : reference["weights"].items()) {
    const at::Tensor& own = run.trained.weights.tensor(name);
    wanted.weights.set(
        name, torch::tensor(numbers.get<std::vector<double>>(), at::kDouble).view(own.sizes()));
  }
  EXPECT_EQ(difference(run.trained, wanted, of.tolerance()), "");
  EXPECT_EQ(run.scales, reference["scales"].get<std::vector<double>>());
  EXPECT_LT(run.trained.losses.back(), 1.5 * run.trained.losses.front());
}

INSTANTIATE_TEST_SUITE_P(Precisions, Gpu1Reference, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace reference_test
}  // namespace levin::test::gpu
