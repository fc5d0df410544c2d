// Tensors of every sort through a .safetensors file, by way of save_weights and load_weights.
#include "levin/checkpoint/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "levin/files/safetensors.h"
#include "levin/module/parameters.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;
using levin::State;
using levin::test::error_of;
using levin::test::put;
using levin::test::same_bits;
using levin::test::Scratch;
using levin::test::through_disk;
using ::testing::ElementsAre;
using ::testing::StartsWith;

class TensorDtype : public ::testing::TestWithParam<at::ScalarType> {};

/// All bytes there are, so NaNs, infinities and negative zeros of every dtype too.
at::Tensor every_byte(at::ScalarType dtype) {
  const at::Tensor bytes = torch::arange(256, torch::kInt).to(torch::kByte);
  return dtype == at::kBool ? bytes.remainder(2).to(at::kBool) : bytes.view(dtype);
}

TEST_P(TensorDtype, ComesBackBitForBit) {
  const at::Tensor tensor = every_byte(GetParam()).reshape({2, -1, 2});
  EXPECT_TRUE(same_bits(through_disk(tensor), tensor));
}

TEST_P(TensorDtype, ComesBackFromAnEmptyTensorAndAScalar) {
  const auto options = at::TensorOptions(GetParam());
  EXPECT_TRUE(
      same_bits(through_disk(torch::empty({2, 0, 3}, options)), torch::empty({2, 0, 3}, options)));
  const at::Tensor scalar = every_byte(GetParam()).slice(0, 0, 1).reshape({});
  EXPECT_TRUE(same_bits(through_disk(scalar), scalar));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TensorDtype,
                         ::testing::Values(at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                           at::kComplexFloat, at::kLong, at::kInt, at::kShort,
                                           at::kChar, at::kUInt64, at::kUInt32, at::kUInt16,
                                           at::kByte, at::kBool, at::kFloat8_e4m3fn,
                                           at::kFloat8_e5m2, at::kFloat8_e4m3fnuz,
                                           at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(TensorFile, TensorsOfAnyStridesComeBackByTheirValues) {
  const at::Tensor base = torch::arange(120, torch::kFloat).reshape({2, 3, 4, 5});
  for (const at::Tensor& tensor :
       {base.transpose(1, 3), base.slice(3, 0, 5, 2), base.select(2, 1), base.narrow(0, 1, 1),
        base.contiguous(at::MemoryFormat::ChannelsLast), torch::ones({1}).expand({7, 3}),
        base.diagonal(0, 1, 2)}) {
    const at::Tensor back = through_disk(tensor);
    EXPECT_TRUE(torch::equal(back, tensor)) << tensor.strides();
  }
}

TEST(TensorFile, TensorsWhoseMemoryIsNotTheirValueComeBackByTheirValues) {
  const at::Tensor real = torch::tensor({1.0F, -2.0F});
  EXPECT_TRUE(torch::equal(through_disk(at::_neg_view(real)), -real));
  const at::Tensor complex = torch::complex(real, real);
  EXPECT_TRUE(torch::equal(through_disk(complex.conj()), torch::complex(real, -real)));
}

TEST(TensorFile, ParametersComeBackAsPlainTensors) {
  const at::Tensor back = through_disk(torch::ones({2}).requires_grad_());
  EXPECT_FALSE(back.requires_grad());
  EXPECT_TRUE(torch::equal(back, torch::ones({2})));
}

TEST(TensorFile, NamesThatShareMemoryEachComeBack) {
  const Scratch scratch;
  const at::Tensor shared = torch::arange(6, torch::kFloat);
  State weights;
  weights.set("a", shared).set("b", shared).set("part", shared.slice(0, 2, 5));
  levin::save_weights(scratch / "w.safetensors", weights);
  EXPECT_EQ(levin::test::difference(weights, levin::load_weights(scratch / "w.safetensors")), "");
}

TEST(TensorFile, OpensAsSafetensorsWithTheModulesNames) {
  const Scratch scratch;
  const torch::nn::Sequential net(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2));
  levin::save_checkpoint(scratch / "c", {.weights = {{"model", levin::module_state(*net)}}});
  const levin::files::SafetensorsFile file(scratch / "c/model.safetensors");
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  EXPECT_THAT(names, ElementsAre("0.bias", "0.weight", "1.bias", "1.num_batches_tracked",
                                 "1.running_mean", "1.running_var", "1.weight"));
  EXPECT_EQ(file.find("0.weight")->dtype, "F32");
  EXPECT_THAT(file.find("0.weight")->shape, ElementsAre(2, 3));
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

/// A file as others may write it: three bytes before the floats, so that these lie unaligned.
fs::path unaligned_file(const Scratch& scratch) {
  std::string header = R"({"u":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                       R"("w":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  const float values[] = {1.5F, -2.0F};
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header + "abc";
  bytes.append(reinterpret_cast<const char*>(values), sizeof values);
  return put(scratch / "w.safetensors", bytes);
}

TEST(TensorFile, AFileWhoseTensorsLieUnalignedGivesAlignedOnes) {
  const Scratch scratch;
  const at::Tensor w = levin::load_weights(unaligned_file(scratch)).tensor("w");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(w.const_data_ptr()) % sizeof(float), 0u);
  EXPECT_TRUE(torch::equal(w, torch::tensor({1.5F, -2.0F})));
}

TEST(TensorFile, LoadedTensorsOutliveTheFile) {
  const Scratch scratch;
  State weights;
  weights.set("w", torch::arange(1000, torch::kFloat));
  levin::save_weights(scratch / "w.safetensors", weights);
  const at::Tensor loaded = levin::load_weights(scratch / "w.safetensors").tensor("w");
  fs::remove(scratch / "w.safetensors");
  EXPECT_TRUE(torch::equal(loaded, torch::arange(1000, torch::kFloat)));
}

TEST(TensorFile, PairsOfFourBitsComeBackAndAreF4InTheFile) {
  const Scratch scratch;
  const at::Tensor bytes = torch::arange(6, torch::kByte).view({2, 3});
  State weights;
  weights.set("w", bytes.view(at::ScalarType::Float4_e2m1fn_x2));
  levin::save_weights(scratch / "w.safetensors", weights);
  const levin::files::SafetensorsFile file(scratch / "w.safetensors");
  EXPECT_EQ(file.find("w")->dtype, "F4");
  EXPECT_THAT(file.find("w")->shape, ElementsAre(2, 6));
  const at::Tensor back = levin::load_weights(scratch / "w.safetensors").tensor("w");
  EXPECT_EQ(back.scalar_type(), at::ScalarType::Float4_e2m1fn_x2);
  EXPECT_TRUE(torch::equal(back.view(torch::kByte), bytes));
}

TEST(TensorFile, ATypeThatLibTorchLacksIsNamedAndTheOthersAreRead) {
  const Scratch scratch;
  const std::string data = "0123456789abcdef";
  const auto bytes = std::as_bytes(std::span(data));
  levin::files::write_safetensors(
      scratch / "w.safetensors",
      std::vector<levin::files::TensorEntry>{{"six", "F6_E2M3", {4}, bytes.first(3)},
                                             {"w", "U8", {2}, bytes.first(2)}});
  ::testing::internal::CaptureStderr();
  const State weights = levin::load_weights(scratch / "w.safetensors");
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::HasSubstr(
          "w.safetensors: skipped tensors whose dtype LibTorch does not have: six (F6_E2M3)"));
  EXPECT_EQ(weights.values().size(), 1U);
  EXPECT_TRUE(torch::equal(weights.tensor("w"), torch::tensor({48, 49}, torch::kByte)));
}

TEST(TensorFile, FilesOfOthersAreNamed) {
  const Scratch scratch;
  const std::string rest(600, '\0');
  std::string tar(600, '\0');
  tar.replace(257, 5, "ustar");
  for (const auto& [name, bytes, kind] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"w.gguf", "GGUF" + rest, "a GGUF file"},
           {"w.h5", "\x89HDF" + rest, "an HDF5 file (Keras)"},
           {"w.npy", "\x93NUMPY" + rest, "an array of NumPy"},
           {"w.gz", "\x1f\x8b" + rest, "compressed by gzip"},
           {"w.tar", tar, "a tar archive"},
           {"w.onnx", rest, "a graph of ONNX"}}) {
    const fs::path file = put(scratch / name, bytes);
    EXPECT_THAT(error_of([&] { levin::load_weights(file); }),
                ::testing::AllOf(StartsWith("checkpoint.weights: "),
                                 ::testing::HasSubstr(name + "' is " + kind)));
  }
}

TEST(TensorFile, WhatSafetensorsCannotHoldIsAnErrorThatNamesTheTensor) {
  EXPECT_THAT(error_of([] { through_disk(torch::zeros({1}, torch::kComplexDouble)); }),
              StartsWith("checkpoint.dtype: w has dtype ComplexDouble"));
  EXPECT_THAT(error_of([] { through_disk(torch::eye(3).to_sparse()); }),
              StartsWith("checkpoint.dtype: w is a sparse tensor"));
  EXPECT_THAT(error_of([] { through_disk(at::Tensor()); }),
              StartsWith("checkpoint.dtype: w is an undefined tensor"));
}

TEST(TensorFile, WhatCannotBeSavedLeavesNothingBehind) {
  const Scratch scratch;
  State weights;
  weights.set("w", torch::zeros({1}, torch::kComplexDouble));
  EXPECT_EQ(levin::test::error_id([&] { levin::save_weights(scratch / "w", weights); }),
            "checkpoint.dtype");
  EXPECT_EQ(
      levin::test::error_id([&] { levin::save_checkpoint(scratch / "c", {{{"w", weights}}, {}}); }),
      "checkpoint.dtype");
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

}  // namespace
