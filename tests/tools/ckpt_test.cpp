// levin ckpt as main() calls it.
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <array>

#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/data/sources/sources.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"
#include "tests/support/scratch.h"
#include "tools/command.h"

namespace {

using levin::State;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::string_literals;

struct Said {
  int code = 0;
  std::string text;
};

Said ckpt(std::vector<std::string> words) {
  words.insert(words.begin(), "ckpt");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  Said said;
  try {
    said.code = levin::tools::ckpt(static_cast<int>(words.size()), arguments.data());
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
  said.text = ::testing::internal::GetCapturedStdout();
  return said;
}

class Ckpt : public ::testing::Test {
 protected:
  Ckpt() {
    State weights, training;
    weights.set("layer.weight", torch::arange(6, at::kFloat).view({2, 3}));
    weights.set("layer.bias", torch::ones({2}, at::kDouble));
    training.set("epoch", int64_t{3}).set("rate", 0.5).set("momentum", torch::zeros({4}));
    levin::save_checkpoint(folder_, {.weights = {{"model", weights}}, .training = training});
    training.set("epoch", int64_t{4});
    weights.set("layer.bias", torch::tensor({1.0, 1.25}, at::kDouble)).erase("layer.weight");
    weights.set("other", torch::ones({1}));
    levin::save_checkpoint(other_, {.weights = {{"model", weights}}, .training = training});
  }

  const Scratch scratch_;
  const std::string folder_ = (scratch_ / "one").string(), other_ = (scratch_ / "other").string();
};

TEST_F(Ckpt, InspectNamesTensorsAndNumbers) {
  const Said said = ckpt({"inspect", folder_});
  EXPECT_EQ(said.code, 0);
  EXPECT_THAT(said.text, StartsWith(folder_ + ": levin checkpoint\n"));
  EXPECT_THAT(said.text, HasSubstr("model: 2 tensors, 8 numbers, 40 bytes\n"));
  EXPECT_THAT(said.text, HasSubstr("Float     [2, 3]             layer.weight\n"));
  EXPECT_THAT(said.text, HasSubstr("training state: 1 tensors and\n  epoch: 3\n  rate: 0.5\n"));
  EXPECT_THAT(ckpt({"inspect", "--top", "1", folder_}).text,
              AllOf(HasSubstr("layer.weight"), Not(HasSubstr("layer.bias")),
                    HasSubstr("and 1 smaller ones; --all names them")));
  const auto json = nlohmann::json::parse(ckpt({"inspect", "--json", "--all", folder_}).text);
  EXPECT_EQ(json.at("models").at("model").at("elements").get<int64_t>(), 8);
  EXPECT_EQ(json.at("models").at("model").at("tensors").at("layer.bias").at("dtype"), "Double");
}

TEST_F(Ckpt, VerifyDoesNotCallACheckpointWithoutItsManifestWhole) {
  std::filesystem::remove(std::filesystem::path(folder_) / "manifest.json");
  const Said bad = ckpt({"verify", folder_});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.text, AllOf(HasSubstr("checkpoint.missing"), HasSubstr("manifest.json")));
  EXPECT_THAT(error_of([&] { levin::load_weights(folder_); }), HasSubstr("checkpoint.missing"));
}

TEST_F(Ckpt, VerifyFindsAFlippedBit) {
  const Said good = ckpt({"verify", folder_, other_});
  EXPECT_EQ(good.code, 0);
  EXPECT_THAT(good.text, AllOf(HasSubstr("one: good, "), HasSubstr("other: good, ")));
  std::string bytes = get(scratch_ / "other/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(scratch_ / "other/model.safetensors", bytes);
  const Said bad = ckpt({"verify", folder_, other_});
  EXPECT_EQ(bad.code, 1);
  EXPECT_THAT(bad.text, AllOf(HasSubstr("one: good"), HasSubstr("other: checkpoint.corrupt: ")));
}

TEST_F(Ckpt, DiffSaysWhatIsOtherwise) {
  EXPECT_EQ(ckpt({"diff", folder_, folder_}).text, "no difference\n");
  const Said said = ckpt({"diff", folder_, other_});
  EXPECT_EQ(said.code, 1);
  EXPECT_EQ(said.text,
            "model/layer.bias: 1 of 2 numbers, by 0.25 at most\n"
            "model/layer.weight: only in the first, Float [2, 3]\n"
            "model/other: only in the second, Float [1]\n"
            "training/epoch: 3 and 4\n");
  EXPECT_THAT(ckpt({"diff", "--atol", "0.25", folder_, other_}).text, Not(HasSubstr("layer.bias")));
}

/// A file of torch.save with a tensor "w" of that many elements, all of which lie at one place.
std::string repeated(const Scratch& scratch, int64_t count) {
  const std::string path = (scratch / "repeated.pt").string();
  caffe2::serialize::PyTorchStreamWriter writer(path);
  std::string number(reinterpret_cast<const char*>(&count), sizeof count);
  const std::string pickle =
      "\x80\x02}\x8c\x01wctorch._utils\n_rebuild_tensor_v2\n((\x8c\x07storagectorch\nFloatStorage\n"
      "\x8c\x01"
      "0\x8c\x03"
      "cpuK\x01tQK\x00\x8a\x08"s +
      number + "\x85K\x00\x85\x89NtRs."s;
  const float value = 1.5;
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("data/0", &value, sizeof value);
  writer.writeEndOfFile();
  return path;
}

// 8.6 GB of one number: each command says so, and none makes them.
TEST_F(Ckpt, WhatRepeatsOneElementIsNamedAndNotWritten) {
  const levin::test::PeakMemory memory;
  const std::string file = repeated(scratch_, (int64_t{1} << 31) + 7);
  const std::string to = (scratch_ / "out.safetensors").string();
  EXPECT_THAT(ckpt({"inspect", file}).text, HasSubstr("1 tensors, 2147483655 numbers, 8.59 GB"));
  EXPECT_THAT(ckpt({"verify", file}).text, HasSubstr("'w' repeats 4 bytes as 8.59 GB"));
  const auto is_refused = AllOf(StartsWith("tools.ckpt: "), HasSubstr("'w' of sizes [2147483655]"));
  EXPECT_THAT(error_of([&] { ckpt({"convert", file, to}); }), is_refused);
  EXPECT_THAT(error_of([&] { ckpt({"diff", file, file}); }), is_refused);
  EXPECT_FALSE(std::filesystem::exists(to));
  EXPECT_LT(levin::test::PeakMemory::bytes(), 1 << 20);
  // One of a usual size is written whole.
  EXPECT_EQ(ckpt({"convert", repeated(scratch_, 512), to}).code, 0);
  EXPECT_TRUE(levin::load_weights(to).tensor("w").equal(torch::full({512}, 1.5F)));
}

TEST_F(Ckpt, InspectShowsLongTextsShort) {
  State training, inner;
  inner.set("text", std::string(1000, 'x')).set("other", int64_t{1});
  training.set(std::string(1000, 'k'), inner);
  levin::save_checkpoint(folder_, {.weights = {}, .training = training});
  const std::string text = ckpt({"inspect", folder_}).text;
  EXPECT_THAT(text, HasSubstr(std::string(400, 'k') + "...: 1\n"));
  EXPECT_THAT(text, HasSubstr(std::string(400, 'x') + "... (1000 bytes)\n"));
  EXPECT_LT(text.size(), 2000U);
}

TEST_F(Ckpt, ConvertWritesWhatHuggingFaceReads) {
  const std::string file = (scratch_ / "out.safetensors").string();
  EXPECT_EQ(ckpt({"convert", "--dtype", "bfloat16", folder_, file}).code, 0);
  const State read = levin::load_weights(file);
  EXPECT_TRUE(read.tensor("layer.weight").equal(torch::arange(6).view({2, 3}).to(at::kBFloat16)));
  EXPECT_EQ(read.tensor("layer.bias").scalar_type(), at::kBFloat16);
  const std::string shards = (scratch_ / "shards").string();
  EXPECT_EQ(ckpt({"convert", "--max-shard-bytes", "24", folder_, shards}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "shards/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(levin::load_sharded_weights(shards)
                  .tensor("layer.bias")
                  .equal(torch::ones({2}, at::kDouble)));
  EXPECT_EQ(ckpt({"diff", shards, file}).code, 1);
  EXPECT_THAT(error_of([&] { ckpt({"convert", folder_, file}); }),
              AllOf(StartsWith("tools.ckpt: "), HasSubstr("exists; name a new path")));
  EXPECT_THAT(error_of([&] { ckpt({"convert", "--dtype", "int3", folder_, file + "2"}); }),
              HasSubstr("wanted float32, float16, bfloat16 or float64"));
}

TEST_F(Ckpt, ConvertReadsWhatTorchSaved) {
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("weight", torch::arange(4));
  const std::vector<char> written = torch::pickle_save(dict);
  put(scratch_ / "model.pt", {written.data(), written.size()});
  const std::string from = (scratch_ / "model.pt").string();
  const std::string to = (scratch_ / "model.safetensors").string();
  EXPECT_EQ(ckpt({"convert", from, to}).code, 0);
  EXPECT_TRUE(levin::load_weights(to).tensor("weight").equal(torch::arange(4)));
  EXPECT_EQ(ckpt({"diff", from, to}).text, "no difference\n");
}

std::vector<std::string> names_of(const State& state) {
  std::vector<std::string> names;
  for (const auto& [name, value] : state.values()) names.push_back(name);
  return names;
}

TEST_F(Ckpt, ConvertWritesWhatTorchLoads) {
  for (const char* name : {"out.pt", "out.pth", "pytorch_model.bin"}) {
    const std::string to = (scratch_ / name).string();
    EXPECT_EQ(ckpt({"convert", folder_, to}).code, 0);
    EXPECT_TRUE(levin::is_torch_checkpoint(to)) << name;
    const State read = levin::load_weights(to);
    EXPECT_THAT(names_of(read), ElementsAre("layer.bias", "layer.weight"));
    EXPECT_TRUE(read.tensor("layer.weight").equal(torch::arange(6, at::kFloat).view({2, 3})));
    EXPECT_THAT(error_of([&] { ckpt({"convert", folder_, to}); }),
                HasSubstr("exists; name a new path"));
  }
  const std::string half = (scratch_ / "half.pt").string();
  EXPECT_EQ(ckpt({"convert", "--dtype", "float16", folder_, half}).code, 0);
  EXPECT_EQ(levin::load_weights(half).tensor("layer.bias").scalar_type(), at::kHalf);
  EXPECT_THAT(ckpt({"convert", "--help"}).text, HasSubstr("TO.pt, TO.pth or TO.bin"));
  EXPECT_THAT(ckpt({"--help"}).text,
              AllOf(HasSubstr("in torch.save's\n"), HasSubstr("format (TO.pt, .pth or .bin)")));
}

TEST_F(Ckpt, ConvertKeepsWhatSharesMemory) {
  const at::Tensor shared = torch::arange(6, at::kFloat).view({2, 3});
  State weights;
  weights.set("head", shared).set("words", shared).set("row", shared[1]);
  weights.set("count", torch::ones({2}, at::kLong));
  const std::string from = (scratch_ / "from.pt").string();
  levin::save_weights(from, weights);
  for (const auto& [name, dtype] : std::vector<std::pair<const char*, at::ScalarType>>{
           {"", at::kFloat}, {"bfloat16", at::kBFloat16}}) {
    const std::string to = (scratch_ / "to"s).string() + name + ".pt";
    std::vector<std::string> words = {"convert", from, to};
    if (*name != 0) words.insert(words.begin() + 1, {"--dtype", name});
    EXPECT_EQ(ckpt(words).code, 0);
    const State read = levin::load_weights(to);
    EXPECT_TRUE(read.tensor("head").equal(shared.to(dtype)));
    EXPECT_TRUE(read.tensor("row").equal(shared[1].to(dtype)));
    for (const char* other : {"words", "row"}) {
      EXPECT_TRUE(read.tensor(other).is_alias_of(read.tensor("head"))) << other;
    }
    EXPECT_EQ(read.tensor("count").scalar_type(), at::kLong);
  }
}

// What repeats elements in PyTorch's form does so in the new file too.
TEST_F(Ckpt, ConvertKeepsRepeatedElementsInPytorchsForm) {
  const std::string file = repeated(scratch_, (int64_t{1} << 31) + 7);
  const std::string to = (scratch_ / "out.pt").string();
  EXPECT_EQ(ckpt({"convert", file, to}).code, 0);
  EXPECT_LT(std::filesystem::file_size(to), 4096U);
  const at::Tensor read = levin::load_weights(to).tensor("w");
  EXPECT_EQ(read.numel(), (int64_t{1} << 31) + 7);
  EXPECT_EQ(read[123].item<float>(), 1.5);
  EXPECT_THAT(error_of([&] { ckpt({"convert", "--dtype", "float16", file, to + ".pt"}); }),
              AllOf(StartsWith("tools.ckpt: "), HasSubstr("'w' of sizes [2147483655]")));
}

struct TiedNet : levin::Module {
  TiedNet() {
    words = register_module("words", torch::nn::Linear(3, 3));
    register_module("z_head", std::make_shared<torch::nn::Module>())
        ->register_parameter("weight", words->weight);
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    return torch::matmul(words->forward(batch["x"]), words->weight).square().mean();
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
  torch::nn::Linear words{nullptr};
};

TEST_F(Ckpt, ATrainersCheckpointHasTheNamesOfTiedWeightsInPytorchsForm) {
  levin::TrainerOptions options;
  options.accelerator = "cpu";
  options.default_root_dir = (scratch_ / "run").string();
  options.enable_progress_bar = false;
  options.logger = false;
  options.max_epochs = 1;
  const auto net = std::make_shared<TiedNet>();
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(levin::data::tensors({{"x", torch::ones({4, 3})}}),
                                     {.batch_size = 2}));
  const std::string from = (scratch_ / "run/checkpoints/last").string();
  const std::string to = (scratch_ / "net.pt").string(), flat = to + ".safetensors";
  ASSERT_EQ(ckpt({"convert", from, to}).code, 0);
  const State read = levin::load_weights(to);
  EXPECT_THAT(names_of(read), ElementsAre("words.bias", "words.weight", "z_head.weight"));
  EXPECT_TRUE(read.tensor("z_head.weight").is_alias_of(read.tensor("words.weight")));
  EXPECT_TRUE(read.tensor("words.weight").equal(net->words->weight));
  ASSERT_EQ(ckpt({"convert", from, flat}).code, 0);
  EXPECT_THAT(names_of(levin::load_weights(flat)), ElementsAre("words.bias", "words.weight"));
}

/// A folder as transformers saves it, in the older format: so many files, with their index where there are several.
void put_bins(const Scratch& scratch, const std::string& folder, int64_t files) {
  std::filesystem::create_directories(scratch / folder);
  nlohmann::json index = {{"metadata", {{"total_size", 24 * files}}}, {"weight_map", {}}};
  for (int64_t i = 0; i < files; ++i) {
    c10::Dict<std::string, at::Tensor> dict;
    const std::string tensor = "layer." + std::to_string(i);
    dict.insert(tensor, torch::arange(6, at::kFloat).view({2, 3}) + i);
    const std::vector<char> bytes = torch::pickle_save(dict);
    const std::string name = files == 1
                                 ? "pytorch_model.bin"
                                 : fmt::format("pytorch_model-{:05}-of-{:05}.bin", i + 1, files);
    put(scratch / folder / name, {bytes.data(), bytes.size()});
    index["weight_map"][tensor] = name;
  }
  if (files > 1) put(scratch / folder / "pytorch_model.bin.index.json", index.dump());
}

TEST_F(Ckpt, ReadsFoldersOfTransformersInEachFormat) {
  put_bins(scratch_, "one_bin", 1);
  put_bins(scratch_, "bins", 3);
  const auto path = [&](const char* name) { return (scratch_ / name).string(); };
  for (const char* bins : {"one_bin", "bins"}) {
    SCOPED_TRACE(bins);
    const std::string from = path(bins);
    EXPECT_THAT(ckpt({"inspect", from}).text,
                AllOf(HasSubstr(": folder of weights\n"),
                      HasSubstr("Float     [2, 3]             layer.0\n")));
    const Said verified = ckpt({"verify", from});
    EXPECT_EQ(verified.code, 0);
    EXPECT_THAT(verified.text, HasSubstr("tensors; a folder of weights has no checksums"));
    const std::string whole = from + ".safetensors", shards = from + "_shards";
    EXPECT_EQ(ckpt({"convert", from, whole}).code, 0);
    EXPECT_EQ(ckpt({"convert", "--max-shard-bytes", "24", from, shards}).code, 0);
    for (const std::string& to : {whole, shards}) {
      EXPECT_EQ(ckpt({"diff", from, to}).text, "no difference\n");
      EXPECT_EQ(ckpt({"verify", to}).code, 0);
    }
  }
  EXPECT_TRUE(levin::load_sharded_weights(path("bins"))
                  .tensor("layer.2")
                  .equal(torch::arange(6, at::kFloat).view({2, 3}) + 2));
  EXPECT_EQ(ckpt({"diff", path("one_bin"), path("bins")}).text,
            "model/layer.1: only in the second, Float [2, 3]\n"
            "model/layer.2: only in the second, Float [2, 3]\n");
}

TEST_F(Ckpt, AFileThatAnIndexNamesAndThatIsNotThereIsNamed) {
  put_bins(scratch_, "bins", 3);
  const std::string bins = (scratch_ / "bins").string();
  const std::string shards = (scratch_ / "shards").string();
  ASSERT_EQ(ckpt({"convert", "--max-shard-bytes", "24", bins, shards}).code, 0);
  for (const auto& [folder, index, file] : std::vector<std::array<std::string, 3>>{
           {bins, "pytorch_model.bin.index.json", "pytorch_model-00002-of-00003.bin"},
           {shards, "model.safetensors.index.json", "model-00002-of-00003.safetensors"}}) {
    SCOPED_TRACE(index);
    std::filesystem::remove(std::filesystem::path(folder) / file);
    const std::string said = "checkpoint.missing: " + folder + "/" + index +
                             " lists layer.1 in file " + file + ", but that file does not exist";
    EXPECT_THAT(error_of([&] { ckpt({"inspect", folder}); }), StartsWith(said));
    EXPECT_THAT(error_of([&] { ckpt({"convert", folder, folder + "2"}); }), StartsWith(said));
    EXPECT_THAT(error_of([&] { ckpt({"diff", folder, folder}); }), StartsWith(said));
    const Said verified = ckpt({"verify", folder});
    EXPECT_EQ(verified.code, 1);
    EXPECT_THAT(verified.text, HasSubstr(said));
  }
}

TEST_F(Ckpt, MergeWantsParts) {
  EXPECT_THAT(error_of([&] { ckpt({"merge", folder_, (scratch_ / "to").string()}); }),
              StartsWith("checkpoint.part: "));
}

TEST_F(Ckpt, MistakesSayWhatIsWanted) {
  EXPECT_THAT(
      error_of([&] { ckpt({"inspekt"}); }),
      StartsWith("tools.ckpt: got 'inspekt', wanted inspect, verify, diff, convert or merge"));
  EXPECT_THAT(error_of([&] { ckpt({"diff", folder_}); }),
              HasSubstr("got 1 paths, wanted ONE OTHER"));
  EXPECT_THAT(error_of([&] { ckpt({"inspect", scratch_.str()}); }),
              HasSubstr("is no checkpoint: it has neither"));
  EXPECT_THAT(ckpt({"--help"}).text, HasSubstr("levin ckpt ACTION --help lists its options"));
}

}  // namespace
