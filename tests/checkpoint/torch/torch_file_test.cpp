#include "levin/checkpoint/torch/torch_file.h"

#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <fstream>
#include <map>

#include "levin/checkpoint/checkpoint.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace {

using levin::load_distributed_checkpoint;
using levin::load_torch_file;
using levin::load_torch_weights;
using levin::State;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::string_literals;

/// An archive with that pickle and one storage of six floats, 0 to 5, as "0".
std::filesystem::path archive(const std::filesystem::path& path, const std::string& pickle,
                              const std::string& order = "little") {
  caffe2::serialize::PyTorchStreamWriter writer(path.string());
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", order.data(), order.size());
  writer.writeRecord("data/0", values.data(), values.size() * sizeof(float));
  writer.writeEndOfFile();
  return path;
}

std::string text(const std::string& word) {
  return "\x8c"s + static_cast<char>(word.size()) + word;
}

/// A tensor of the storage: sizes and strides as pickled tuples.
std::string tensor(const std::string& offset, const std::string& sizes, const std::string& strides,
                   const std::string& storage = "ctorch\nFloatStorage\n") {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + storage + text("0") +
         text("cpu") + "K\x06tQ" + offset + sizes + strides + "\x89Nt" + "R";
}

const std::string kTensor = tensor("K\x01", "K\x02K\x02\x86", "K\x02K\x01\x86");

std::string refusal_of(const std::string& pickle) {
  const Scratch scratch;
  const auto path = archive(scratch / "file.pt", "\x80\x02" + pickle + ".");
  return error_of([&] { load_torch_file(path); });
}

TEST(TorchFile, GivesTensorsOfItsStorages) {
  const Scratch scratch;
  const auto path = archive(scratch / "file.pt", "\x80\x02}" + text("a") + kTensor + "s.");
  const at::Tensor read = load_torch_file(path).tensor("a");
  EXPECT_TRUE(read.equal(torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({2, 2})));
  EXPECT_TRUE(levin::is_torch_checkpoint(path));
  EXPECT_TRUE(levin::load_weights(path).tensor("a").equal(read));
}

TEST(TorchFile, WhatLibTorchPickledIsRead) {
  const Scratch scratch;
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("weight", torch::arange(4).view({2, 2}));
  const std::vector<char> written = torch::pickle_save(dict);
  put(scratch / "cpp.pt", {written.data(), written.size()});
  EXPECT_TRUE(load_torch_file(scratch / "cpp.pt").tensor("weight").equal(dict.at("weight")));
}

TEST(TorchFile, AnUnknownClassIsNamedAndNeverCalled) {
  EXPECT_THAT(
      refusal_of("cos\nsystem\n" + text("touch x") + "\x85R"),
      AllOf(StartsWith("checkpoint.torch: "), HasSubstr("it holds an object of os system")));
  EXPECT_THAT(refusal_of("}" + text("a") + "cmodule\nClass\n)\x81s"), HasSubstr("module Class"));
}

TEST(TorchFile, TensorsStayInTheirStorages) {
  const std::string two = "K\x02\x85", one = "K\x01\x85";
  EXPECT_THAT(refusal_of(tensor("K\x05", two, one)), HasSubstr("larger than its storage"));
  EXPECT_THAT(refusal_of(tensor("K\x00"s, two, "K\x06\x85")), HasSubstr("larger than its storage"));
  EXPECT_THAT(refusal_of(tensor("J\xff\xff\xff\xff", two, one)),
              HasSubstr("it has a tensor without a valid shape"));
  EXPECT_THAT(refusal_of(tensor("K\x00"s, "J\xff\xff\xff\xff\x85", one)),
              HasSubstr("without a valid shape"));
  EXPECT_THAT(refusal_of(tensor("K\x00"s, two, "J\xff\xff\xff\xff\x85")),
              HasSubstr("without a valid shape"));
  EXPECT_THAT(refusal_of(tensor("K\x00"s, two, ")")), HasSubstr("without a valid shape"));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85";
  EXPECT_THAT(refusal_of(tensor("K\x00"s, huge, huge)), HasSubstr("larger than its storage"));
  EXPECT_THAT(refusal_of(tensor("K\x00"s, two, one, "cos\nsystem\n")),
              HasSubstr("a storage of class os system"));
  EXPECT_THAT(refusal_of("ctorch._utils\n_rebuild_tensor_v2\n)R"),
              HasSubstr("with missing fields"));
  EXPECT_THAT(refusal_of("ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))\x89Nt"s + "R"),
              HasSubstr("without a storage"));
}

TEST(TorchFile, ListsThatHoldThemselvesComeToAnEnd) {
  EXPECT_THAT(refusal_of("]q\x00h\x00"
                         "a"s),
              HasSubstr("contain themselves"));
  std::string lists = "]q\x00"s;  // each holds the one before twice
  for (char i = 1; i < 60; ++i) lists += "](h"s + char(i - 1) + "h" + char(i - 1) + "eq" + i;
  EXPECT_THAT(refusal_of(lists), HasSubstr("contain themselves"));
}

// torch.save writes expanded tensors so: a view, which takes no memory before somebody asks for it.
TEST(TorchFile, AnExpandedTensorIsAView) {
  const Scratch scratch;
  const std::string many = "\x8a\x05\x07\x00\x00\x80\x00\x85"s;
  const auto path = archive(scratch / "file.pt",
                            "\x80\x02}" + text("a") + tensor("K\x01", many, "K\x00\x85"s) + "s.");
  const at::Tensor read = load_torch_file(path).tensor("a");
  EXPECT_EQ(read.numel(), (int64_t{1} << 31) + 7);
  EXPECT_EQ(read.storage().nbytes(), 24U);
  EXPECT_EQ(read[-1].item<float>(), 1.0F);
}

TEST(TorchFile, SizesThatOverflowAreErrorsThatNameThem) {
  const std::string wide = "\x8a\x06\x00\x00\x00\x00\x00\x01"s;  // 2^40
  EXPECT_THAT(refusal_of(tensor("K\x00"s, wide + wide + "\x86", "K\x00K\x00\x86"s)),
              AllOf(StartsWith("checkpoint.torch: "),
                    HasSubstr("a tensor of sizes [1099511627776, 1099511627776]"),
                    HasSubstr("exceeds 64 bits")));
  const std::string most = "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40"s;  // 2^62
  EXPECT_THAT(refusal_of(tensor("K\x00"s, "K\x00"s + most + most + "\x87", "K\x01K\x01K\x01\x87")),
              HasSubstr("exceeds 64 bits"));
  std::string dims = "(";
  for (int i = 0; i < 65; ++i) dims += "K\x01";
  EXPECT_THAT(refusal_of(tensor("K\x00"s, dims + "t", dims + "t")), HasSubstr("too many dims"));
}

/// Of x, and remembered as 1.
std::string long_text(size_t length) {
  return "X"s + static_cast<char>(length & 255) + static_cast<char>(length >> 8 & 255) +
         static_cast<char>(length >> 16) + '\0' + std::string(length, 'x') + "q\x01"s;
}

/// A list of one text, which has a reference of two bytes to each but the first.
std::string texts(size_t length, int times) {
  std::string pickle = "](" + long_text(length);
  for (int i = 1; i < times; ++i) pickle += "h\x01";
  return pickle + "e";
}

TEST(TorchFile, TextsThatAreReferredToAgainAndAgainAreRefused) {
  const Scratch scratch;
  EXPECT_EQ(load_torch_file(archive(scratch / "file.pt", "\x80\x02" + texts(8, 20'000) + "."))
                .values()
                .size(),
            20'000U);
  EXPECT_THAT(refusal_of(texts(1 << 20, 18)), HasSubstr("refers to long texts too many times"));
  std::string keys = texts(1 << 20, 1) + "0](";  // the text stays remembered
  for (int i = 0; i < 18; ++i) keys += "}h\x01Ns";
  for (int i = 0; i < 18; ++i) keys += "}h\x01K\x01s";
  EXPECT_THAT(refusal_of(keys + "e"), HasSubstr("refers to long texts too many times"));
}

TEST(TorchFile, OtherFilesAreErrors) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { load_torch_file(scratch / "none"); }), StartsWith("files.read: "));
  EXPECT_THAT(error_of([&] { load_torch_file(put(scratch / "file", "no archive")); }),
              HasSubstr("it is not a complete archive of torch.save"));
  const auto path = archive(scratch / "file.pt", "\x80\x02}.");
  EXPECT_THAT(error_of([&] { load_torch_weights(path); }), StartsWith("checkpoint.weights: "));
  const std::string whole = get(path);
  for (size_t size = 0; size < whole.size(); size += 7) {
    put(path, whole.substr(0, size));
    EXPECT_THAT(error_of([&] { load_torch_file(path); }), StartsWith("checkpoint.torch: ")) << size;
  }
  EXPECT_THAT(error_of([&] { load_torch_file(archive(scratch / "big.pt", "\x80\x02}.", "big")); }),
              HasSubstr("another byte order"));
}

TEST(TorchFile, APipeIsNoFileOfWeights) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(levin::is_torch_checkpoint(scratch / "pipe"));
  EXPECT_THAT(error_of([&] { levin::load_weights(scratch / "pipe"); }),
              AllOf(StartsWith("files.read: "), HasSubstr("it is a pipe, wanted a file")));
}

TEST(TorchFile, OfManyTreesTheWeightsAreFound) {
  const Scratch scratch;
  const std::string dict = "}" + text("w") + kTensor + "s";
  for (const char* name : {"state_dict", "model_state_dict", "model"}) {
    const auto path = archive(scratch / "file.pt", "\x80\x02}(" + text(name) + dict +
                                                       text("other") + "cmodule\nClass\n)\x81u.");
    const State weights = load_torch_weights(path);
    EXPECT_EQ(weights.values().size(), 1U) << name;
    EXPECT_EQ(weights.tensor("w").numel(), 4) << name;
  }
}

/// A network that has all that a module's state has.
torch::nn::ModuleList network() {
  const torch::nn::ModuleList inner(torch::nn::Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  return torch::nn::ModuleList(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2), inner);
}

void expect_state_of(const torch::nn::Module& module, const State& state) {
  std::map<std::string, at::Tensor> wanted;
  for (const auto& item : module.named_parameters()) wanted[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) wanted[item.key()] = item.value();
  ASSERT_EQ(state.values().size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    ASSERT_TRUE(state.contains(name)) << name;
    EXPECT_EQ(state.tensor(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(torch::equal(state.tensor(name), tensor)) << name;
  }
}

TEST(TorchFile, AModuleThatLibTorchSavedIsRead) {
  const Scratch scratch;
  const auto net = network();
  torch::save(net, (scratch / "net.pt").string());
  expect_state_of(*net, levin::load_weights(scratch / "net.pt"));
  expect_state_of(*net, load_torch_file(scratch / "net.pt"));
  const at::Tensor alone = torch::arange(6).view({2, 3});
  torch::save(alone, (scratch / "tensor.pt").string());
  EXPECT_TRUE(torch::equal(levin::load_weights(scratch / "tensor.pt").tensor("0"), alone));
  torch::save(std::vector<at::Tensor>{alone, alone + 1}, (scratch / "tensors.pt").string());
  EXPECT_TRUE(torch::equal(levin::load_weights(scratch / "tensors.pt").tensor("1"), alone + 1));
}

TEST(TorchFile, OfTorchScriptParametersAndBuffersAreReadAndNoOtherTensors) {
  const Scratch scratch;
  torch::jit::Module inner("inner"), module("module");
  inner.register_parameter("weight", torch::full({2}, 3.0F), /*is_buffer=*/false);
  inner.register_buffer("mean", torch::full({2}, 4.0F));
  inner.register_attribute("anchors", c10::TensorType::get(), torch::zeros({9}));
  module.register_module("inner", inner);
  module.register_attribute("name", c10::StringType::get(), "net");
  module.save((scratch / "module.pt").string());
  const State state = levin::load_weights(scratch / "module.pt");
  EXPECT_EQ(state.values().size(), 2U);
  EXPECT_TRUE(torch::equal(state.tensor("inner.weight"), torch::full({2}, 3.0F)));
  EXPECT_TRUE(torch::equal(state.tensor("inner.mean"), torch::full({2}, 4.0F)));
}

TEST(TorchFile, AProgramOfTorchExportIsNamed) {
  const Scratch scratch;
  caffe2::serialize::PyTorchStreamWriter writer((scratch / "program.pt2").string());
  writer.writeRecord("archive_format", "pt2", 3);
  writer.writeEndOfFile();
  EXPECT_THAT(error_of([&] { levin::load_weights(scratch / "program.pt2"); }),
              AllOf(StartsWith("checkpoint.torch: "), HasSubstr("program.pt2"),
                    HasSubstr("a program of torch.export (.pt2)"), HasSubstr("state_dict")));
}

/// As PyTorch before 1.6 wrote the pickle and the storage of six floats.
std::string legacy(const std::string& pickle, int64_t count = 6) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::string file =
      "\x80\x02\x8a\nl\xfc\x9c"
      "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}" +
      text("little_endian") + "\x88s.\x80\x02" + pickle + ".\x80\x02](" + text("0") + "e.";
  file.append(reinterpret_cast<const char*>(&count), sizeof count);
  return file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST(TorchFile, OfBeforePyTorch16IsRead) {
  const Scratch scratch;
  const std::string dict = "}" + text("w") + kTensor + "s";
  const auto path = put(scratch / "old.pt", legacy(dict));
  const at::Tensor wanted = torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}});
  EXPECT_TRUE(torch::equal(levin::load_weights(path).tensor("w"), wanted));
  EXPECT_TRUE(torch::equal(load_torch_file(path).tensor("w"), wanted));
  const std::string whole = legacy(dict);
  for (size_t size = 15; size < whole.size(); size += 5) {
    put(path, whole.substr(0, size));
    EXPECT_THAT(error_of([&] { load_torch_file(path); }), StartsWith("checkpoint.torch: ")) << size;
  }
  for (const int64_t count : {int64_t{7}, int64_t{-1}, int64_t{1} << 62}) {
    put(path, legacy(dict, count));
    EXPECT_THAT(error_of([&] { load_torch_file(path); }), StartsWith("checkpoint.torch: "))
        << count;
  }
}

/// Of Python: "parameters" and "modules" are entries of dicts.
std::string python_module(const std::string& parameters, const std::string& modules) {
  return "cmine\nModule\n)\x81}(" + text("_parameters") + "}(" + parameters + "u" +
         text("_modules") + "}(" + modules + "uub";
}

TEST(TorchFile, OldFilesAndModulesTakeMemoryByTheirBytes) {
  const Scratch scratch;
  const auto old = put(scratch / "old.pt", legacy("(" + kTensor + texts(1 << 20, 18) + "t"));
  EXPECT_THAT(error_of([&] { load_torch_file(old); }),
              HasSubstr("refers to long texts too many times"));

  std::string modules = python_module("", "") + "q\x01" + "0";  // each holds the one before twice
  for (char i = 2; i < 60; ++i) {
    const std::string before = "h"s + static_cast<char>(i - 1);
    modules += python_module("", text("a") + before + text("b") + before) + "q" + i + "0";
  }
  EXPECT_THAT(refusal_of(modules + "h\x3b"), HasSubstr("refers to long texts too many times"));
  EXPECT_THAT(refusal_of("cmine\nModule\n)\x81q\x01}(" + text("_parameters") + "}" +
                         text("_modules") + "}" + text("self") + "h\x01sub"),
              HasSubstr("its modules contain themselves"));

  std::string tensors = text("t") + kTensor + "q\x02";
  for (int i = 0; i < 20; ++i) tensors += text("u" + std::to_string(i)) + "h\x02";
  const auto named = [&](size_t length) {
    return python_module("", long_text(length) + python_module(tensors, ""));
  };
  EXPECT_THAT(refusal_of(named(1 << 20)), HasSubstr("refers to long texts too many times"));
  const auto path = archive(scratch / "module.pt", "\x80\x02" + named(300) + ".");
  EXPECT_EQ(levin::load_weights(path).values().size(), 21U);
}

TEST(TorchFile, WhatIsNotReadIsNamedAndTheOthersAreThere) {
  const Scratch scratch;
  const std::string meta = "ctorch._utils\n_rebuild_meta_tensor_no_storage\n)R";
  const std::string sparse = "ctorch._utils\n_rebuild_sparse_tensor\n)R";
  const std::string parameter = "ctorch._utils\n_rebuild_parameter\n" + sparse + "\x85R";
  const std::string own =
      "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
      "cmine\nSub\n)}tR";
  const std::string plain =
      "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
      "ctorch\nTensor\n((" +
      text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") +
      "K\x06tQK\x01K\x02\x85K\x01\x85\x89Nt}tR";
  const std::string dict = "}(" + text("meta") + meta + text("sparse") + sparse + text("param") +
                           parameter + text("sub") + own + text("plain") + plain + text("w") +
                           kTensor + "u";
  const auto path = archive(scratch / "odd.pt", "\x80\x02" + dict + ".");
  for (const auto& load : {&levin::load_weights, &load_torch_file}) {
    ::testing::internal::CaptureStderr();
    const State state = load(path);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("odd.pt: skipped tensors"),
                      HasSubstr("meta (a tensor on the meta device, without values)"),
                      HasSubstr("sparse (a sparse tensor)"), HasSubstr("param (a sparse tensor)"),
                      HasSubstr("sub (a tensor of the class mine.Sub)")));
    EXPECT_EQ(state.values().size(), 2U);
    EXPECT_TRUE(torch::equal(state.tensor("plain"), torch::tensor({1.0F, 2.0F})));
    EXPECT_EQ(state.tensor("w").numel(), 4);
  }
}

/// .metadata with one tensor "w" of the given parts, each of which lies in "__0_0.distcp".
struct Part {
  std::vector<int> offsets;
  std::string archive;
};
std::string size_of(const std::vector<int>& numbers) {
  std::string tuple = "(";
  for (const int number : numbers) tuple += "K"s + static_cast<char>(number);
  return "ctorch\nSize\n" + tuple + "t\x85R";
}
std::string object(const std::string& name, const std::string& state) {
  return "ctorch.distributed.checkpoint." + name + "\n)\x81}(" + state + "ub";
}
std::filesystem::path distributed(const std::filesystem::path& folder, const std::vector<int>& size,
                                  const std::vector<Part>& parts,
                                  const std::string& file = "__0_0.distcp",
                                  const std::string& more = "") {
  std::filesystem::create_directories(folder);
  std::string stored, contents;
  for (const Part& part : parts) {
    stored += object("metadata\nMetadataIndex",
                     text("fqn") + text("w") + text("offset") + size_of(part.offsets)) +
              object("filesystem\n_StorageInfo",
                     text("relative_path") + text(file) + text("offset") + "M" +
                         static_cast<char>(contents.size() & 255) +
                         static_cast<char>(contents.size() >> 8) + text("length") + "M" +
                         static_cast<char>(part.archive.size() & 255) +
                         static_cast<char>(part.archive.size() >> 8) + more);
    contents += part.archive;
  }
  put(folder / "__0_0.distcp", contents);
  put(folder / ".metadata",
      "\x80\x04" +
          object("metadata\nMetadata",
                 text("state_dict_metadata") + "}" + text("w") +
                     object("metadata\nTensorStorageMetadata", text("size") + size_of(size)) + "s" +
                     text("storage_data") + "}(" + stored + "u") +
          ".");
  return folder;
}

std::string part_of(const Scratch& scratch, const std::string& sizes, const std::string& strides) {
  return get(archive(scratch / "part", "\x80\x02" + tensor("K\x00"s, sizes, strides) + "."));
}

TEST(DistributedCheckpoint, PutsTensorsTogether) {
  const Scratch scratch;
  const std::string row = part_of(scratch, "K\x01K\x03\x86", "K\x03K\x01\x86");
  const auto folder = distributed(scratch / "dcp", {2, 3}, {{{0, 0}, row}, {{1, 0}, row}});
  EXPECT_TRUE(load_distributed_checkpoint(folder).tensor("w").equal(
      torch::tensor({0.0F, 1.0F, 2.0F, 0.0F, 1.0F, 2.0F}).view({2, 3})));
  EXPECT_TRUE(levin::load_weights(folder).contains("w"));
}

TEST(DistributedCheckpoint, MissingAndOverlappingPartsAreErrors) {
  const Scratch scratch;
  const std::string row = part_of(scratch, "K\x01K\x03\x86", "K\x03K\x01\x86");
  const auto refusal = [&](const std::vector<int>& size, const std::vector<Part>& parts) {
    return error_of(
        [&] { load_distributed_checkpoint(distributed(scratch / "dcp", size, parts)); });
  };
  const auto is_refused =
      AllOf(StartsWith("checkpoint.torch: "), HasSubstr("the parts of w do not"));
  EXPECT_THAT(refusal({2, 3}, {{{0, 0}, row}}), is_refused);
  EXPECT_THAT(refusal({2, 3}, {{{0, 0}, row}, {{0, 0}, row}}), is_refused);
  EXPECT_THAT(refusal({2, 3}, {{{0, 0}, row}, {{2, 0}, row}}), is_refused);
  EXPECT_THAT(refusal({2, 3}, {{{0, 0}, row}, {{1, 1}, row}}), is_refused);
  EXPECT_THAT(refusal({6}, {{{0}, row}, {{3}, row}}), is_refused);
}

TEST(DistributedCheckpoint, PartsHaveAsManyBytesAsTheirFile) {
  const Scratch scratch;
  const std::string row = part_of(scratch, "K\x01K\x03\x86", "K\x03K\x01\x86");
  const std::string repeated = part_of(scratch, "M\x00\x10K\x03\x86"s, "K\x00K\x01\x86"s);
  EXPECT_THAT(
      error_of([&] {
        load_distributed_checkpoint(distributed(scratch / "dcp", {1, 3}, {{{0, 0}, repeated}}));
      }),
      HasSubstr("a part of w has 49152 bytes in"));
  // Two parts that are the same bytes.
  const auto folder = distributed(scratch / "dcp", {2, 3}, {{{0, 0}, row}, {{1, 0}, row}});
  put(folder / "__0_0.distcp", row);
  EXPECT_THAT(error_of([&] { load_distributed_checkpoint(folder); }),
              HasSubstr("fewer than .metadata says"));
}

TEST(DistributedCheckpoint, StaysInItsFolder) {
  const Scratch scratch;
  const std::string row = part_of(scratch, "K\x03\x85", "K\x01\x85");
  for (const char* file : {"../secret", "/etc/passwd", "a/b", ""}) {
    EXPECT_THAT(
        error_of([&] {
          load_distributed_checkpoint(distributed(scratch / "dcp", {3}, {{{0}, row}}, file));
        }),
        HasSubstr("which is not a file of its folder"))
        << file;
  }
}

TEST(DistributedCheckpoint, DamagedOnesAreErrors) {
  const Scratch scratch;
  const std::string row = part_of(scratch, "K\x03\x85", "K\x01\x85");
  const auto folder = distributed(scratch / "dcp", {3}, {{{0}, row}});
  put(folder / "__0_0.distcp", row.substr(0, row.size() - 1));
  EXPECT_THAT(error_of([&] { load_distributed_checkpoint(folder); }),
              HasSubstr("fewer than .metadata says"));
  const std::string metadata = get(folder / ".metadata");
  put(folder / ".metadata", metadata.substr(0, metadata.size() / 2));
  EXPECT_THAT(error_of([&] { load_distributed_checkpoint(folder); }),
              HasSubstr("it ends too early"));
  put(folder / ".metadata", "\x80\x04}.");
  EXPECT_THAT(error_of([&] { load_distributed_checkpoint(folder); }),
              HasSubstr("not of torch.distributed.checkpoint"));
  distributed(folder, {3}, {{{0}, row}}, "__0_0.distcp",
              text("transform_descriptors") + "]" + text("zstd") + "a");
  EXPECT_THAT(error_of([&] { load_distributed_checkpoint(folder); }),
              HasSubstr("compressed or encoded"));
}

}  // namespace
