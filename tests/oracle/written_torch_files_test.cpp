// Weights that levin writes in torch.save's format, opened by Python.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <filesystem>

#include "levin/checkpoint/checkpoint.h"
#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/oracle/python.h"

namespace levin::test::written_torch_files {
namespace {

using nlohmann::json;

class WrittenTorchFiles : public PythonTest {
 protected:
  /// What Python finds wrong; nothing when all is right.
  std::string problem_of(const std::string& kind, const std::filesystem::path& path,
                         const std::string& more = "") const {
    std::string output;
    const int code = run("read_torch_files.py", kind + " '" + path.string() + "' " + more, &output);
    return code == 0 ? "" : output;
  }

  std::string problem_of(const std::string& kind, const State& weights,
                         const json& expected) const {
    std::ofstream(file("expected.json")) << expected;
    save_weights(file("weights.pt"), weights);
    return problem_of(kind, file("weights.pt"), "'" + file("expected.json").string() + "'");
  }
};

std::string hex_of(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.contiguous();
  std::string text;
  const auto* data = static_cast<const uint8_t*>(bytes.const_data_ptr());
  for (size_t i = 0; i < bytes.nbytes(); ++i) text += fmt::format("{:02x}", data[i]);
  return text;
}

/// Every dtype that Python has, of all bytes there are.
State every_dtype(json& expected) {
  const std::vector<std::pair<const char*, at::ScalarType>> dtypes = {
      {"float64", at::kDouble},
      {"float32", at::kFloat},
      {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16},
      {"complex128", at::kComplexDouble},
      {"complex64", at::kComplexFloat},
      {"complex32", at::kComplexHalf},
      {"int64", at::kLong},
      {"int32", at::kInt},
      {"int16", at::kShort},
      {"int8", at::kChar},
      {"uint64", at::kUInt64},
      {"uint32", at::kUInt32},
      {"uint16", at::kUInt16},
      {"uint8", at::kByte},
      {"bool", at::kBool},
      {"float8_e4m3fn", at::kFloat8_e4m3fn},
      {"float8_e5m2", at::kFloat8_e5m2},
      {"float8_e4m3fnuz", at::kFloat8_e4m3fnuz},
      {"float8_e5m2fnuz", at::kFloat8_e5m2fnuz},
      {"float8_e8m0fnu", at::kFloat8_e8m0fnu},
      {"float4_e2m1fn_x2", at::ScalarType::Float4_e2m1fn_x2},
      {"bits8", at::ScalarType::Bits8},
      {"bits16", at::ScalarType::Bits16}};
  const at::Tensor bytes = torch::arange(256, torch::kInt).to(torch::kByte);
  State weights;
  for (const auto& [name, dtype] : dtypes) {
    const at::Tensor all = (dtype == at::kBool ? bytes.remainder(2) : bytes).clone().view(dtype);
    weights.set(std::string("full.") + name, all.view({2, -1, 2}));
    weights.set(std::string("empty.") + name, torch::empty({3, 0}, at::TensorOptions(dtype)));
    const at::Tensor one = torch::empty({}, at::TensorOptions(dtype));
    std::memset(one.mutable_data_ptr(), 1, one.nbytes());
    weights.set(std::string("one.") + name, one);
    for (const char* kind : {"full.", "empty.", "one."}) {
      expected["tensors"][std::string(kind) + name]["dtype"] = name;
    }
  }
  return weights;
}

/// Tensors that share memory, and those of odd strides and names.
void add_views(State& weights, json& expected) {
  const at::Tensor shared = torch::arange(12, torch::kFloat);
  weights.set("shared.a", shared).set("shared.b", shared.detach());
  weights.set("shared.part", shared.slice(0, 2, 5)).set("shared.square", shared.view({3, 4}).t());
  const at::Tensor flat = torch::arange(100, torch::kFloat);
  weights.set("flat.a", flat.narrow(0, 10, 6)).set("flat.b", flat.narrow(0, 16, 4).view({2, 2}));
  const at::Tensor base = torch::arange(120, torch::kFloat).view({2, 3, 4, 5});
  weights.set("channels_last", base.contiguous(at::MemoryFormat::ChannelsLast));
  weights.set("transposed", base.transpose(1, 3).clone(at::MemoryFormat::Preserve));
  weights.set("expanded", torch::full({1}, 3.0F).expand({7, 3}));
  weights.set("column", base.select(3, 2).clone().select(1, 0).narrow(1, 1, 1));
  const at::Tensor complex = torch::complex(torch::arange(4, torch::kFloat), torch::ones({4}));
  weights.set("conjugate", complex.conj());
  weights.set("parameter", torch::ones({2}).requires_grad_());
  weights.set("größe", torch::ones({1}));
  expected["shared"] = {{"shared.a", "shared.b", "shared.part", "shared.square"}};
}

/// Fills in what every tensor of the state is expected to be.
void add_values(const State& weights, json& expected) {
  for (const auto& [name, value] : weights.values()) {
    json& own = expected["tensors"][name];
    const at::Tensor tensor = weights.tensor(name).detach().resolve_conj();
    if (!own.contains("dtype")) own["dtype"] = tensor.is_complex() ? "complex64" : "float32";
    own["shape"] = tensor.sizes().vec();
    own["strides"] = tensor.strides().vec();
    own["bytes"] = hex_of(tensor);
  }
}

TEST_F(WrittenTorchFiles, HoldEachTensorBitForBit) {
  json expected;
  State weights = every_dtype(expected);
  add_views(weights, expected);
  add_values(weights, expected);
  expected["tensors"]["column"]["strides"] = {1, 1};  // packed
  EXPECT_EQ(problem_of("tensors", weights, expected), "");
}

TEST_F(WrittenTorchFiles, HoldViewsOfSeveralDtypesInOneStorage) {
  const at::Tensor complex = torch::complex(torch::arange(4, torch::kFloat), torch::ones({4}));
  State weights;
  weights.set("complex", complex.slice(0, 1)).set("real", at::view_as_real(complex));
  weights.set("imag", at::imag(complex));
  json expected;
  expected["shared"] = {{"complex", "imag", "real"}};
  add_values(weights, expected);
  EXPECT_EQ(problem_of("views", weights, expected), "");
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    wte = register_module("wte", torch::nn::Embedding(11, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    register_module("lm_head", std::make_shared<torch::nn::Module>())
        ->register_parameter("weight", wte->weight);
    norm->forward(torch::randn({8, 4}));
  }
  torch::nn::Embedding wte{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

TEST_F(WrittenTorchFiles, OfATiedModuleAreTakenByPythonsModuleStrictly) {
  torch::manual_seed(3);
  Net net;
  for (const char* name : {"net.pt", "net.pth", "pytorch_model.bin"}) {
    save_weights(file(name), *net);
    EXPECT_EQ(problem_of("module", file(name)), "");
  }
  // And back: what Python would have saved goes into the module of C++.
  Net other;
  load_module_state(*other, load_weights(file("net.pt")));
  EXPECT_TRUE(torch::equal(other->wte->weight, net->wte->weight));
  EXPECT_TRUE(torch::equal(other->norm->running_var, net->norm->running_var));
}

// A buffer that Python registers with persistent=False is in no state dict, and has its values from the program.
TEST_F(WrittenTorchFiles, GoFromPythonToCppAndBack) {
  ASSERT_EQ(problem_of("export", file("")), "");
  const auto net = load_exported(file("net.pt2"));
  EXPECT_FALSE(module_state(*net).contains("mask"));
  load_module_state(*net, load_weights(file("state.pt")));  // strictly
  net->train();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const at::Tensor x = torch::arange(6) + 5;
  net->forward(x).square().mean().backward();
  optimizer.step();
  net->eval();
  const at::Tensor y = net->forward(x).detach();
  EXPECT_TRUE(torch::equal(y, net->forward(x)));
  save_weights(file("trained.pt"), *net);
  save_weights(file("outputs.pt"), State().set("x", x).set("y", y));
  EXPECT_EQ(problem_of("trained", file("")), "");
}

TEST_F(WrittenTorchFiles, OfMoreRecordsThan16BitsCountAreOpened) {
  const at::Tensor values = torch::arange(66'000);
  State weights;
  for (int64_t i = 0; i < values.size(0); ++i) weights.set(std::to_string(i), values[i]);
  save_weights(file("many.pt"), weights);
  EXPECT_EQ(problem_of("many", file("many.pt")), "");
}

TEST_F(WrittenTorchFiles, OfMoreThan4GbAreOpenedToo) {
  if (std::getenv("LEVIN_SOAK") == nullptr) GTEST_SKIP() << "writes 4.3 GB; LEVIN_SOAK=1 does it";
  at::Tensor large = torch::zeros({(int64_t{1} << 32) + 100}, torch::kByte);
  large[0] = 5;
  large[-1] = 7;
  State weights;
  weights.set("large", large).set("later", torch::arange(5, torch::kFloat));
  save_weights(file("large.pt"), weights);
  EXPECT_EQ(problem_of("large", file("large.pt")), "");
  const State back = load_weights(file("large.pt"));
  EXPECT_EQ(back.tensor("large")[-1].item<int64_t>(), 7);
  EXPECT_TRUE(torch::equal(back.tensor("later"), weights.tensor("later")));
}

}  // namespace
}  // namespace levin::test::written_torch_files
