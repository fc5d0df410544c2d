// Every layer of torch::nn with each option that changes its operators: three steps of SGD, then
// evaluation, equal to the CPU's. Layers share programs: compiling takes most of the time.
#include <span>

#include "tests/xla/module_cases.h"

namespace {

using namespace levin::test;  // NOLINT
using at::Tensor;

constexpr double kRate = 0.02;
constexpr int64_t kSteps = 3;
constexpr double kTolerance = 5e-5;  // of the greatest element: sums are rounded in another order

enum class Phase { kTrain, kEvaluate, kPredict };

/// A layer in training on one device.
class Training {
 public:
  Training(const ModuleCase& of, at::Device device) {
    torch::manual_seed(7);
    made_ = of.make();
    made_.module->to(device);
    for (const Tensor& input : of.inputs()) {
      inputs_.push_back(
          input.to(device, input.is_floating_point() ? at::kFloat : input.scalar_type()));
    }
  }

  /// What the layer gives, then the gradients of its inputs and parameters, undefined ones too.
  OperatorTensors run(Phase phase) {
    made_.module->train(phase == Phase::kTrain);
    const at::AutoGradMode grad_mode(phase != Phase::kPredict);
    OperatorTensors leaves;
    OperatorTensors given;
    for (const Tensor& input : inputs_) {
      leaves.push_back(input.detach());
      if (input.is_floating_point()) leaves.back().requires_grad_();
      given.push_back(input.is_floating_point() ? leaves.back() * 1 : leaves.back());
    }
    OperatorTensors results = made_.call(given);
    if (phase == Phase::kPredict) return results;
    const OperatorTensors parameters = made_.module->parameters();
    leaves.insert(leaves.end(), parameters.begin(), parameters.end());
    walk_back(results);
    for (Tensor& result : results) result = result.detach();
    for (const Tensor& leaf : leaves) results.push_back(leaf.grad());
    if (phase == Phase::kTrain) torch::optim::SGD(parameters, kRate).step();
    made_.module->zero_grad();
    return results;
  }

  /// Whether evaluation has another way back than training.
  bool has_modes() const { return !made_.module->buffers().empty(); }

  OperatorTensors state() const {
    OperatorTensors all = made_.module->parameters();
    append_to(all, made_.module->buffers());
    return all;
  }

 private:
  static void walk_back(const OperatorTensors& results) {
    Tensor loss;
    for (const Tensor& result : results) {
      if (!result.requires_grad()) continue;
      const Tensor weights =
          at::linspace(0.5, 1.5, result.numel(), result.options().device(at::kCPU))
              .view(result.sizes())
              .to(result.device());
      const Tensor part = (result * weights).sum();
      loss = loss.defined() ? loss + part : part;
    }
    if (loss.defined()) loss.backward();
  }

  ModuleCase::Made made_;
  OperatorTensors inputs_;
};

/// A case on both devices, and what both have given so far.
struct Pair {
  const ModuleCase& of;
  Training here, there;
  std::vector<std::string> what = {};
  OperatorTensors came = {}, wanted = {};

  explicit Pair(const ModuleCase& of)
      : of(of), here(of, at::kCPU), there(of, xla_runtime().device()) {}

  void add(const std::string& name, const OperatorTensors& from_there,
           const OperatorTensors& from_here) {
    ASSERT_EQ(from_there.size(), from_here.size()) << of.name << ": " << name;
    for (size_t i = 0; i < from_here.size(); ++i) {
      what.push_back(c10::str(of.name, ": ", name, ": ", i));
      came.push_back(from_there[i]);
      wanted.push_back(from_here[i]);
    }
  }
};

void expect_close(const Tensor& came, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(came.defined(), wanted.defined()) << what;
  if (!wanted.defined()) return;
  ASSERT_EQ(came.sizes(), wanted.sizes()) << what;
  ASSERT_EQ(came.scalar_type(), wanted.scalar_type()) << what;
  const Tensor there = came.detach().cpu();
  const Tensor here = wanted.detach().to_dense();  // a sparse gradient has the same values
  if (here.numel() == 0) return;
  const double greatest = here.to(at::kDouble).nan_to_num(0, 0, 0).abs().max().item<double>();
  const double tolerance = here.is_floating_point() ? kTolerance * std::max(1.0, greatest) : 0;
  EXPECT_TRUE(there.allclose(here, 0, tolerance, /*equal_nan=*/true)) << what << '\n'
                                                                      << there << "\nwanted\n"
                                                                      << here;
}

/// In training only the sizes are known, and that the numbers are finite.
void expect_sound(const ModuleCase& of) {
  Pair pair(of);
  pair.add("random", pair.there.run(Phase::kTrain), pair.here.run(Phase::kTrain));
  for (size_t i = 0; i < pair.came.size(); ++i) {
    ASSERT_EQ(pair.came[i].defined(), pair.wanted[i].defined()) << pair.what[i];
    if (!pair.came[i].defined()) continue;
    EXPECT_EQ(pair.came[i].sizes(), pair.wanted[i].sizes()) << pair.what[i];
    EXPECT_TRUE(pair.came[i].cpu().isfinite().all().item<bool>()) << pair.what[i];
  }
}

void advance(Pair& pair, Phase phase, const std::string& name) {
  const int64_t before = xla_runtime().report().host_fallbacks;
  const OperatorTensors from_there = pair.there.run(phase);
  const bool was_on_host = xla_runtime().report().host_fallbacks > before;
  EXPECT_TRUE(pair.of.is_on_host || !was_on_host) << pair.of.name << " ran on the host: " << name;
  pair.add(name, from_there, pair.here.run(phase));
}

/// False where a program that they share failed: whose fault that is shows when each runs alone.
bool expect_equal(std::span<const ModuleCase> cases) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (const ModuleCase& of : cases) pairs.push_back(std::make_unique<Pair>(of));
  const auto all = [&](Phase phase, const std::string& name) {
    for (auto& pair : pairs) {
      if (pair == nullptr || (phase == Phase::kTrain && pair->of.is_random)) continue;
      const bool has_modes = pair->of.is_random || pair->here.has_modes();
      if (phase == Phase::kEvaluate && !has_modes) continue;
      try {
        advance(*pair, phase, name);
      } catch (const std::exception& error) {
        ADD_FAILURE() << pair->of.name << ": " << name << ": " << error.what();
        pair.reset();
      }
    }
    xla_runtime().sync();
  };
  try {
    for (int64_t i = 0; i < kSteps; ++i) all(Phase::kTrain, c10::str("step ", i));
    all(Phase::kEvaluate, "evaluation");
    all(Phase::kPredict, "prediction");
    for (const auto& pair : pairs) {
      if (pair == nullptr) continue;
      if (pair->of.is_random) expect_sound(pair->of);
      pair->add("state", pair->there.state(), pair->here.state());
      for (size_t i = 0; i < pair->came.size(); ++i) {
        expect_close(pair->came[i], pair->wanted[i], pair->what[i]);
      }
    }
  } catch (const std::exception& error) {
    if (cases.size() == 1) ADD_FAILURE() << cases[0].name << ": " << error.what();
    return false;
  }
  return true;
}

struct ModuleGroup {
  std::string name;
  ModuleCases cases;
  friend void PrintTo(const ModuleGroup& group, std::ostream* out) { *out << group.name; }
};

std::vector<ModuleGroup> groups() {
  std::vector<ModuleGroup> all = {{"Recurrent", recurrent_modules()},
                                  {"Convolutions", convolution_modules()},
                                  {"Pools", pooling_modules()},
                                  {"Resizing", resizing_modules()},
                                  {"Norms", norm_modules()},
                                  {"Activations", activation_modules()},
                                  {"Embeddings", embedding_modules()},
                                  {"Attention", attention_modules()},
                                  {"Transformers", transformer_modules()},
                                  {"Losses", loss_modules()}};
  return all;
}

class ModulesOnXla : public testing::TestWithParam<ModuleGroup> {};

TEST_P(ModulesOnXla, TrainAsOnTheCpu) {
  constexpr size_t kOfAProgram = 20;
  const std::span<const ModuleCase> cases = GetParam().cases;
  for (size_t i = 0; i < cases.size(); i += kOfAProgram) {
    const auto some = cases.subspan(i, std::min(kOfAProgram, cases.size() - i));
    if (expect_equal(some)) continue;
    for (size_t j = 0; j < some.size(); ++j) expect_equal(some.subspan(j, 1));
  }
}

/// The first line of what it throws; "" where it throws nothing.
std::string refusal_of(const ModuleCase& of, at::Device device) {
  try {
    Training(of, device).run(Phase::kTrain);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "";
}

TEST(RefusedModulesOnXla, AreRefusedAsOnTheCpu) {
  const at::Device device = xla_runtime().device();  // before autograd counts the devices
  for (const ModuleCase& of : refused_modules()) {
    const std::string here = refusal_of(of, at::kCPU);
    EXPECT_NE(here, "") << of.name;
    EXPECT_EQ(refusal_of(of, device), here) << of.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Table, ModulesOnXla, testing::ValuesIn(groups()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
