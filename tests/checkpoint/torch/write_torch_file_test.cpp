// Files in torch.save's format, by way of save_weights. tests/oracle opens them in Python.
#include "levin/checkpoint/torch/write_torch_file.h"

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "levin/checkpoint/torch/pickle_writer.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/module/parameters.h"
#include "tests/checkpoint/on_disk.h"
#include "tests/support/divided.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace levin::test::write_torch_file {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

/// The tensors of a file that holds `weights`.
State through_file(const State& weights) {
  const Scratch scratch;
  save_weights(scratch / "w.pt", weights);
  return load_weights(scratch / "w.pt");
}

at::Tensor through_file(const at::Tensor& tensor) {
  return through_file(State().set("w", tensor)).tensor("w");
}

std::string refusal_of(const at::Tensor& tensor) {
  return error_of([&] { through_file(tensor); });
}

/// The sizes in bytes of the storages in a file.
std::vector<size_t> storages_in(const fs::path& file) {
  caffe2::serialize::PyTorchStreamReader reader(file.string());
  std::vector<size_t> sizes;
  while (reader.hasRecord("data/" + std::to_string(sizes.size()))) {
    sizes.push_back(reader.getRecordSize("data/" + std::to_string(sizes.size())));
  }
  return sizes;
}

/// Whose head is its embedding, as in Python lm_head.weight = wte.weight makes it.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    wte = register_module("wte", torch::nn::Embedding(5, 3));
    register_module("norm", torch::nn::BatchNorm1d(3));
    register_module("lm_head", std::make_shared<torch::nn::Module>())
        ->register_parameter("weight", wte->weight);
  }
  torch::nn::Embedding wte{nullptr};
};
TORCH_MODULE(Tied);

class TorchDtype : public ::testing::TestWithParam<at::ScalarType> {};

/// All bytes there are, so NaNs, infinities and negative zeros of every dtype too.
at::Tensor every_byte(at::ScalarType dtype) {
  const at::Tensor bytes = torch::arange(256, torch::kInt).to(torch::kByte);
  return dtype == at::kBool ? bytes.remainder(2).to(at::kBool) : bytes.view(dtype);
}

TEST_P(TorchDtype, ComesBackBitForBit) {
  const at::Tensor tensor = every_byte(GetParam()).view({2, -1, 2});
  EXPECT_TRUE(same_bits(through_file(tensor), tensor));
}

TEST_P(TorchDtype, ComesBackFromAnEmptyTensorAndAScalar) {
  const at::Tensor empty = torch::empty({2, 0, 3}, at::TensorOptions(GetParam()));
  EXPECT_TRUE(same_bits(through_file(empty), empty));
  const at::Tensor scalar = every_byte(GetParam()).slice(0, 0, 1).view({});
  EXPECT_TRUE(same_bits(through_file(scalar), scalar));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TorchDtype,
                         ::testing::Values(at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                           at::kComplexDouble, at::kComplexFloat, at::kComplexHalf,
                                           at::kLong, at::kInt, at::kShort, at::kChar, at::kUInt64,
                                           at::kUInt32, at::kUInt16, at::kByte, at::kBool,
                                           at::kFloat8_e4m3fn, at::kFloat8_e5m2,
                                           at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz,
                                           at::kFloat8_e8m0fnu, at::ScalarType::Float4_e2m1fn_x2,
                                           at::ScalarType::Bits8, at::ScalarType::Bits16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(TorchFileWriter, WritesTheRecordsOfTorchSaveAtMultiplesOf64) {
  const Scratch scratch;
  State weights;
  weights.set("b", torch::ones({3})).set("a", torch::arange(5)).set("c", torch::ones({7}));
  for (const char* name : {"w.pt", "w.pth", "w.bin"}) {
    save_weights(scratch / name, weights);
    caffe2::serialize::PyTorchStreamReader reader((scratch / name).string());
    EXPECT_THAT(reader.getAllRecords(),
                ElementsAre("data.pkl", ".format_version", ".storage_alignment", "byteorder",
                            "data/0", "data/1", "data/2", "version", ".data/serialization_id"));
    const std::map<std::string, std::string> texts = {{".format_version", "1"},
                                                      {".storage_alignment", "64"},
                                                      {"byteorder", "little"},
                                                      {"version", "3\n"}};
    for (const auto& [record, text] : texts) {
      const auto [data, size] = reader.getRecord(record);
      EXPECT_EQ(std::string(static_cast<const char*>(data.get()), size), text) << record;
    }
    for (const char* record : {"data/0", "data/1", "data/2"}) {
      EXPECT_EQ(reader.getRecordOffset(record) % 64, 0U) << record;
    }
    EXPECT_THAT(storages_in(scratch / name), ElementsAre(40, 12, 28));  // by name
  }
}

TEST(TorchFileWriter, TheSameStateIsTheSameBytes) {
  const Scratch scratch;
  const State weights = sample(3).weights.at("model");
  save_weights(scratch / "a.pt", weights);
  save_weights(scratch / "b.pt", weights);
  EXPECT_EQ(get(scratch / "a.pt"), get(scratch / "b.pt"));
}

TEST(TorchFileWriter, StridesStayWhereATensorFillsOrRepeatsItsMemory) {
  const at::Tensor base = torch::arange(120, torch::kFloat).view({2, 3, 4, 5});
  for (const at::Tensor& tensor :
       {base.transpose(1, 3), base.contiguous(at::MemoryFormat::ChannelsLast),
        torch::ones({1}).expand({7, 3}), base.narrow(0, 1, 1)}) {
    const at::Tensor back = through_file(tensor);
    EXPECT_TRUE(torch::equal(back, tensor)) << tensor.strides();
    EXPECT_EQ(back.strides(), tensor.strides());
  }
}

TEST(TorchFileWriter, OfATensorWithGapsNothingElseIsWritten) {
  const Scratch scratch;
  const at::Tensor base = torch::arange(120, torch::kFloat).view({2, 3, 4, 5});
  for (const at::Tensor& tensor : {base.slice(3, 0, 5, 2), base.select(2, 1), base.narrow(0, 1, 1),
                                   base.diagonal(0, 1, 2), base.select(3, 2).transpose(0, 1)}) {
    save_weights(scratch / "w.pt", State().set("w", tensor));
    EXPECT_TRUE(torch::equal(load_weights(scratch / "w.pt").tensor("w"), tensor));
    EXPECT_THAT(storages_in(scratch / "w.pt"), ElementsAre(tensor.nbytes())) << tensor.sizes();
  }
}

TEST(TorchFileWriter, NamesThatShareMemoryShareItAgain) {
  const Scratch scratch;
  const at::Tensor shared = torch::arange(12, torch::kFloat);
  State weights;
  weights.set("a", shared).set("b", shared.detach()).set("part", shared.slice(0, 2, 5));
  weights.set("square", shared.view({3, 4}).t()).set("other", torch::ones({2}));
  save_weights(scratch / "w.pt", weights);
  EXPECT_THAT(storages_in(scratch / "w.pt"), ElementsAre(48, 8));
  const State back = load_weights(scratch / "w.pt");
  EXPECT_EQ(difference(weights, back), "");
  EXPECT_EQ(back.tensor("a").const_data_ptr(), back.tensor("b").const_data_ptr());
  EXPECT_EQ(back.tensor("part").storage_offset(), 2);
  EXPECT_EQ(back.tensor("square").strides(), at::IntArrayRef({1, 4}));
  for (const char* name : {"b", "part", "square"}) {
    EXPECT_TRUE(back.tensor(name).is_alias_of(back.tensor("a"))) << name;
  }
  EXPECT_FALSE(back.tensor("other").is_alias_of(back.tensor("a")));
}

// A flat buffer has parameters that share nothing but LibTorch's storage, and more beside them.
TEST(TorchFileWriter, TensorsSideBySideInOneStorageAreStoragesOfTheirOwn) {
  const Scratch scratch;
  const at::Tensor flat = torch::arange(100, torch::kFloat);
  State weights;
  weights.set("a", flat.narrow(0, 10, 6)).set("b", flat.narrow(0, 16, 4).view({2, 2}));
  weights.set("empty", flat.narrow(0, 12, 0)).set("tail", flat.narrow(0, 14, 2));
  save_weights(scratch / "w.pt", weights);
  EXPECT_THAT(storages_in(scratch / "w.pt"), ElementsAre(24, 16, 0));
  const State back = load_weights(scratch / "w.pt");
  EXPECT_EQ(difference(weights, back), "");
  EXPECT_TRUE(back.tensor("tail").is_alias_of(back.tensor("a")));
}

TEST(TorchFileWriter, ViewsOfOtherDtypesShareToo) {
  const Scratch scratch;
  const at::Tensor complex = torch::complex(torch::arange(4, torch::kFloat), torch::ones({4}));
  State weights;
  weights.set("complex", complex.slice(0, 1)).set("real", at::view_as_real(complex).slice(0, 1));
  weights.set("imag", at::imag(complex)).set("second", complex.view(at::kDouble).slice(0, 3));
  save_weights(scratch / "w.pt", weights);
  EXPECT_THAT(storages_in(scratch / "w.pt"), ElementsAre(32));
  const State back = load_weights(scratch / "w.pt");
  EXPECT_EQ(difference(weights, back), "");
  for (const char* name : {"complex", "real", "second"}) {
    EXPECT_TRUE(back.tensor(name).is_alias_of(back.tensor("imag"))) << name;
  }
}

TEST(TorchFileWriter, TensorsWhoseMemoryIsNotTheirValueComeBackByTheirValues) {
  const at::Tensor real = torch::tensor({1.0F, -2.0F});
  EXPECT_TRUE(torch::equal(through_file(at::_neg_view(real)), -real));
  const at::Tensor complex = torch::complex(real, real);
  EXPECT_TRUE(torch::equal(through_file(complex.conj()), torch::complex(real, -real)));
}

TEST(TorchFileWriter, AModulesTiedWeightsHaveEachOfTheirNames) {
  const Scratch scratch;
  Tied tied;
  save_weights(scratch / "net.pt", *tied);
  const State back = load_weights(scratch / "net.pt");
  std::vector<std::string> names;
  for (const auto& [name, value] : back.values()) names.push_back(name);
  EXPECT_THAT(names,
              ElementsAre("lm_head.weight", "norm.bias", "norm.num_batches_tracked",
                          "norm.running_mean", "norm.running_var", "norm.weight", "wte.weight"));
  EXPECT_EQ(back.tensor("lm_head.weight").const_data_ptr(),
            back.tensor("wte.weight").const_data_ptr());
  EXPECT_EQ(storages_in(scratch / "net.pt").size(), 6U);
  EXPECT_FALSE(back.tensor("wte.weight").requires_grad());
  // Safetensors has each storage once.
  save_weights(scratch / "net.safetensors", *tied);
  const State flat = load_weights(scratch / "net.safetensors");
  EXPECT_FALSE(flat.contains("lm_head.weight"));
  EXPECT_EQ(flat.values().size(), 6U);
}

TEST(TorchFileWriter, TensorsMayLieInAMapOfTheFileThatIsReplaced) {
  const Scratch scratch;
  const State weights = sample(3).weights.at("model");
  save_weights(scratch / "w.pt", weights);
  save_weights(scratch / "w.pt", load_weights(scratch / "w.pt"));
  EXPECT_EQ(difference(weights, load_weights(scratch / "w.pt")), "");
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("w.pt"));
}

TEST(TorchFileWriter, MoreRecordsThan16BitsCountAreRead) {
  const at::Tensor values = torch::arange(66'000);
  State weights;
  for (int64_t i = 0; i < values.size(0); ++i) weights.set(std::to_string(i), values[i]);
  EXPECT_EQ(difference(weights, through_file(weights)), "");
}

TEST(TorchFileWriter, AnEmptyStateIsAnEmptyDict) {
  const Scratch scratch;
  save_weights(scratch / "w.pt", State());
  EXPECT_TRUE(load_torch_file(scratch / "w.pt").empty());
}

TEST(TorchFileWriter, WhatItCannotHoldIsAnErrorThatNamesTheTensor) {
  EXPECT_THAT(refusal_of(at::Tensor()), StartsWith("checkpoint.dtype: w is an undefined tensor"));
  EXPECT_THAT(refusal_of(torch::eye(3).to_sparse()),
              StartsWith("checkpoint.dtype: w is a sparse tensor"));
  EXPECT_THAT(refusal_of(torch::ones({3}, at::kMeta)),
              StartsWith("checkpoint.dtype: w is a tensor on the meta device"));
  EXPECT_THAT(refusal_of(at::_nested_tensor_from_tensor_list({torch::ones({2})})),
              StartsWith("checkpoint.dtype: w is a nested tensor"));
  EXPECT_THAT(refusal_of(at::quantize_per_tensor(torch::ones({3}), 0.1, 0, at::kQInt8)),
              StartsWith("checkpoint.dtype: w is of dtype QInt8"));
  at::Tensor freed = torch::ones({3});
  freed.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_THAT(refusal_of(freed), StartsWith("checkpoint.dtype: w has no memory"));
  EXPECT_THAT(error_of([] { through_file(State().set("\xff", torch::ones({1}))); }),
              AllOf(StartsWith("checkpoint.path: "), HasSubstr("is not UTF-8")));
  EXPECT_EQ(error_id([] { through_file(State().set("w", 1.0)); }), "base.state.type");
  EXPECT_EQ(error_id([] { through_file(State().set("w", State())); }), "base.state.type");
}

TEST(TorchFileWriter, APartOfATensorIsRefusedAndAWholeOneIsNot) {
  const Scratch scratch;
  const at::Tensor local = torch::ones({2, 3});
  for (const char* name : {"w.pt", "w.safetensors"}) {
    const State part = State().set("w", TensorSlice{local, {4, 3}, {0, 0}});
    EXPECT_THAT(
        error_of([&] { save_weights(scratch / name, part); }),
        AllOf(StartsWith("checkpoint.slice: 'w' is sharded: this rank has [2, 3] of [4, 3]"),
              HasSubstr("levin::full(module)")));
    EXPECT_TRUE(fs::is_empty(scratch.path()));
    save_weights(scratch / name, State().set("w", TensorSlice{local, {2, 3}, {0, 0}}));
    EXPECT_TRUE(torch::equal(load_weights(scratch / name).tensor("w"), local));
    fs::remove(scratch / name);
  }
}

TEST(TorchFileWriter, ADividedModuleIsWrittenByWayOfItsWholes) {
  const Scratch scratch;
  const auto said = run_world(2, [&](int64_t rank, const auto&) -> std::string {
    torch::manual_seed(5);
    const torch::nn::Linear net(3, 4);
    const State wanted = full(*net);
    const comm::DeviceMesh mesh(connect(), {{"dp", 2}});
    const auto rows = divide(named_parameters(*net), mesh);
    const fs::path file = scratch / (std::to_string(rank) + ".pt");
    const std::string refusal = error_of([&] { save_weights(file, *net); });
    if (!refusal.starts_with("checkpoint.slice: ")) return refusal;
    save_weights(file, full(*net));
    return difference(wanted, load_weights(file));
  });
  EXPECT_THAT(said, ::testing::Each(""));
}

TEST(TorchFileWriter, WhatCannotBeSavedLeavesNothingBehind) {
  const Scratch scratch;
  State weights;
  weights.set("a", torch::ones({3})).set("w", torch::eye(3).to_sparse());
  EXPECT_EQ(error_id([&] { save_weights(scratch / "w.pt", weights); }), "checkpoint.dtype");
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  EXPECT_EQ(error_id([&] { save_weights(scratch / "none" / "w.pt", State()); }), "files.write");
}

TEST(PickleWriter, IntegersTakeTheShortestForm) {
  using namespace std::string_literals;
  const auto pickled = [](int64_t value) {
    detail::PickleWriter pickle;
    pickle.integer(value);
    return std::move(pickle).end().substr(2);
  };
  EXPECT_EQ(pickled(0), "K\0."s);
  EXPECT_EQ(pickled(255), "K\xff."s);
  EXPECT_EQ(pickled(256), "M\0\x01."s);
  EXPECT_EQ(pickled(65536), "J\0\0\x01\0."s);
  EXPECT_EQ(pickled(-1), "J\xff\xff\xff\xff."s);
  EXPECT_EQ(pickled(int64_t{1} << 31), "\x8a\x08\0\0\0\x80\0\0\0\0."s);
}

}  // namespace
}  // namespace levin::test::write_torch_file
