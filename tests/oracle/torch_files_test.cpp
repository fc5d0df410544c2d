// What PyTorch saves, read by levin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "tests/oracle/python.h"
#include "tests/support/error_of.h"

namespace {

using levin::load_torch_file;
using levin::State;
using levin::test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class TorchFiles : public levin::test::PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    std::string output;
    ASSERT_EQ(run("write_torch.py", "'" + file("").string() + "'", &output), 0) << output;
  }
};

std::vector<std::string> keys_of(const State& state) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : state.values()) keys.push_back(key);
  return keys;
}

void expect_equal(const at::Tensor& tensor, const at::Tensor& wanted, const std::string& name) {
  EXPECT_EQ(tensor.scalar_type(), wanted.scalar_type()) << name;
  EXPECT_EQ(tensor.sizes(), wanted.sizes()) << name;
  if (tensor.sizes() != wanted.sizes()) return;
  const at::Tensor a = tensor.resolve_conj().contiguous(), b = wanted.contiguous();
  EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << name << a << b;
}

void check_everything(const std::filesystem::path& path) {
  const State all = load_torch_file(path);
  const at::Tensor six = at::arange(6).view({2, 3});
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"float64", at::kDouble},
      {"float32", at::kFloat},
      {"float16", at::kHalf},
      {"bfloat16", at::kBFloat16},
      {"int64", at::kLong},
      {"int32", at::kInt},
      {"int16", at::kShort},
      {"int8", at::kChar},
      {"uint8", at::kByte},
      {"bool", at::kBool},
      {"complex64", at::kComplexFloat},
      {"float8_e4m3fn", at::kFloat8_e4m3fn},
      {"uint16", at::kUInt16}};
  const State& tensors = all.child("tensors");
  EXPECT_EQ(tensors.values().size(), types.size());
  for (const auto& [name, type] : types) {
    expect_equal(tensors.tensor("torch." + name), six.to(type), name);
  }
  expect_equal(all.tensor("transposed"), six.to(at::kFloat).t(), "transposed");
  expect_equal(all.tensor("all"), at::arange(12, at::kFloat), "all");
  expect_equal(all.tensor("tail"), at::arange(4, 12, at::kFloat), "tail");
  EXPECT_TRUE(all.tensor("tail").is_alias_of(all.tensor("all")));
  const at::Tensor conjugated =
      at::complex(torch::tensor({1.0F, 3.0F}), torch::tensor({-2.0F, 4.0F}));
  expect_equal(all.tensor("conjugated"), conjugated, "conjugated");
  expect_equal(all.tensor("empty"), at::empty({0, 4}), "empty");
  expect_equal(all.tensor("scalar"), at::scalar_tensor(2.5), "scalar");
  expect_equal(all.tensor("parameter"), at::ones({2}), "parameter");
  const State& numbers = all.child("numbers");
  EXPECT_EQ(keys_of(numbers), (std::vector<std::string>{"7", "float", "int", "true"}));
  EXPECT_EQ(numbers.integer("int"), -(int64_t{1} << 40));
  EXPECT_EQ(numbers.number("float"), 0.5);
  EXPECT_TRUE(numbers.boolean("true"));
  EXPECT_EQ(numbers.text("7"), "seven");
  const State& list = all.child("list");
  EXPECT_EQ(list.integer("0"), 1);
  EXPECT_EQ(list.child("1").integer("0"), 2);
  expect_equal(list.child("1").tensor("1"), at::scalar_tensor(3, at::kLong), "in a list");
  EXPECT_TRUE(list.child("2").empty());
  EXPECT_EQ(all.child("size").integer("1"), 3);
  EXPECT_EQ(all.text("device"), "cpu");
  EXPECT_EQ(all.text("dtype"), "torch.bfloat16");
}

void check_weights(const State& weights) {
  EXPECT_EQ(keys_of(weights),
            (std::vector<std::string>{"0.bias", "0.weight", "1.bias", "1.num_batches_tracked",
                                      "1.running_mean", "1.running_var", "1.weight"}));
  expect_equal(weights.tensor("0.weight"), at::full({2, 3}, 0.25), "0.weight");
}

void check_pairs(const State& weights) {
  const at::Tensor pairs = weights.tensor("pairs");
  EXPECT_EQ(pairs.scalar_type(), at::ScalarType::Float4_e2m1fn_x2);
  expect_equal(pairs.view(at::kByte), at::arange(12, at::kByte).view({3, 4}), "pairs");
  expect_equal(weights.tensor("a"), at::arange(3, at::kFloat), "a");
}

/// What levin does not read is named, and all else is there.
void check_odd_tensors(const std::filesystem::path& path) {
  ::testing::internal::CaptureStderr();
  const State weights = levin::load_weights(path);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(keys_of(weights),
            (std::vector<std::string>{"a", "b.tagged", "buffer", "c.noted", "pairs"}));
  check_pairs(weights);
  expect_equal(weights.tensor("b.tagged"), at::arange(4, at::kFloat), "b.tagged");
  expect_equal(weights.tensor("c.noted"), at::arange(5, at::kFloat), "c.noted");
  expect_equal(weights.tensor("buffer"), at::arange(6, at::kFloat), "buffer");
  for (const char* words :
       {"sparse (a sparse tensor)", "rows (a sparse tensor)", "nested (a nested tensor)",
        "jagged (a tensor of the class torch.nested._internal.nested_tensor.NestedTensor)",
        "meta (a tensor on the meta device, without values)", "quantized (a quantized tensor)"}) {
    EXPECT_THAT(said, HasSubstr(words));
  }
}

// Python's start and its libraries take seconds: one test.
TEST_F(TorchFiles, HoldWhatPytorchWrote) {
  check_everything(file("everything.pt"));
  check_weights(levin::load_weights(file("pytorch_model.bin")));
  check_weights(levin::load_weights(file("lightning.ckpt")));
  EXPECT_THAT(error_of([&] { load_torch_file(file("lightning.ckpt")); }),
              AllOf(StartsWith("checkpoint.torch: "), HasSubstr("__main__ Settings")));
  expect_equal(load_torch_file(file("old.pt")).tensor("a"), at::ones({2}), "a");
  for (const char* name : {"module.pt", "old_module.pt", "script.pt"}) {
    check_weights(levin::load_weights(file(name)));
  }
  EXPECT_THAT(error_of([&] { levin::load_weights(file("program.pt2")); }),
              HasSubstr("it is a program of torch.export"));
  check_odd_tensors(file("odd.pt"));
  check_odd_tensors(file("old_odd.pt"));
  check_pairs(levin::load_weights(file("pairs.safetensors")));

  const State optimizer = load_torch_file(file("optimizer.pt"));
  const State& first = optimizer.child("state").child("0");
  EXPECT_EQ(first.tensor("step").item<float>(), 1);
  expect_equal(first.tensor("exp_avg"), at::full({2, 3}, 0.05F), "exp_avg");
  EXPECT_EQ(optimizer.child("param_groups").child("0").number("lr"), 0.125);

  const State shards = levin::load_distributed_checkpoint(file("distributed"));
  EXPECT_EQ(keys_of(shards), (std::vector<std::string>{"model", "name", "optim", "step"}));
  const State& model = shards.child("model");
  expect_equal(model.tensor("rows.weight"), at::arange(15, at::kFloat).view({5, 3}), "rows");
  expect_equal(model.tensor("columns"), at::arange(8).view({2, 4}), "columns");
  expect_equal(model.tensor("bias"), at::full({2}, 0.5), "bias");
  EXPECT_EQ(shards.child("optim").child("state").child("0").tensor("step").item<float>(), 4);
  EXPECT_EQ(shards.integer("step"), 5);
  EXPECT_EQ(shards.text("name"), "run");
  EXPECT_EQ(keys_of(levin::load_weights(file("distributed"))),
            (std::vector<std::string>{"bias", "columns", "rows.weight"}));
  std::filesystem::remove(file("distributed") / "__1_0.distcp");
  EXPECT_THAT(error_of([&] { levin::load_distributed_checkpoint(file("distributed")); }),
              AllOf(StartsWith("files.read: "), HasSubstr("__1_0.distcp")));
}

}  // namespace
