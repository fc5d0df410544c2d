// Files go from levin to Python's libraries and back.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>

#include "levin/checkpoint/checkpoint.h"
#include "levin/files/event_file.h"
#include "levin/files/safetensors.h"
#include "tests/oracle/python.h"

namespace {

namespace fs = std::filesystem;
using levin::files::TensorEntry;
using levin::test::bytes_of;
using nlohmann::json;

class Interchange : public levin::test::PythonTest {
 protected:
  /// Whether Python reads these contents, and if not, how they differ.
  ::testing::AssertionResult python_reads(const std::string& kind, const fs::path& path,
                                          const json& expected) const {
    std::ofstream(file("expected.json")) << expected.dump();
    std::string output;
    const int code =
        run("read_levin.py",
            kind + " '" + path.string() + "' '" + file("expected.json").string() + "'", &output);
    return code == 0 ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << output;
  }
};

TensorEntry entry(const std::string& name, const std::string& dtype, const at::Tensor& tensor) {
  return {name,
          dtype,
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

struct Case {
  const char* dtype;   ///< safetensors' name
  const char* python;  ///< PyTorch's name
  at::ScalarType type;
};
const Case kCases[] = {{"F64", "float64", at::kDouble}, {"F32", "float32", at::kFloat},
                       {"F16", "float16", at::kHalf},   {"BF16", "bfloat16", at::kBFloat16},
                       {"I64", "int64", at::kLong},     {"I32", "int32", at::kInt},
                       {"I16", "int16", at::kShort},    {"I8", "int8", at::kChar},
                       {"U8", "uint8", at::kByte},      {"BOOL", "bool", at::kBool}};

TEST_F(Interchange, PythonReadsOurSafetensors) {
  std::vector<at::Tensor> alive;
  std::vector<TensorEntry> entries;
  json expected = {{"tensors", json::object()}, {"metadata", {{"format", "pt"}, {"a", "\"b\"\n"}}}};
  for (const auto& [dtype, python, type] : kCases) {
    const auto& tensor = alive.emplace_back(at::arange(6).view({2, 3}).to(type));
    entries.push_back(entry(dtype, dtype, tensor));
    json values = {0, 1, 2, 3, 4, 5};
    if (type == at::kBool) values = {false, true, true, true, true, true};
    expected["tensors"][dtype] = {{"dtype", python}, {"shape", {2, 3}}, {"values", values}};
  }
  alive.push_back(at::scalar_tensor(2.5));
  entries.push_back(entry("a.scalar", "F32", alive.back()));
  expected["tensors"]["a.scalar"] = {
      {"dtype", "float32"}, {"shape", json::array()}, {"values", {2.5}}};
  levin::files::write_safetensors(file("model.safetensors"), entries,
                                  {{"format", "pt"}, {"a", "\"b\"\n"}});
  EXPECT_TRUE(python_reads("safetensors", file("model.safetensors"), expected));
}

/// Weights of four types, and what Python is to see of them.
std::pair<levin::State, json> some_weights() {
  levin::State weights;
  json expected = json::object();
  for (const auto& [name, type, python] :
       {std::tuple("net.0.weight", at::kFloat, "float32"),
        std::tuple("net.0.bias", at::kBFloat16, "bfloat16"),
        std::tuple("net.1.running_mean", at::kDouble, "float64"),
        std::tuple("net.1.num_batches_tracked", at::kLong, "int64")}) {
    weights.set(name, at::arange(6).view({3, 2}).to(type));
    expected[name] = {{"dtype", python}, {"shape", {3, 2}}, {"values", {0, 1, 2, 3, 4, 5}}};
  }
  return {weights, expected};
}

TEST_F(Interchange, PythonsReadersOpenACheckpointsWeights) {
  const auto [weights, tensors] = some_weights();
  levin::Checkpoint checkpoint;
  checkpoint.weights["model"] = weights;
  checkpoint.training.set("moments", at::ones({3}));
  levin::save_checkpoint(file("one"), checkpoint);
  EXPECT_TRUE(python_reads("weights", file("one"),
                           {{"safetensors", tensors}, {"torch.distributed.checkpoint", tensors}}));
  levin::save_checkpoint(file("several"), checkpoint, {.max_shard_bytes = 60});
  ASSERT_TRUE(fs::exists(file("several") / "model-00001-of-00003.safetensors"));
  EXPECT_TRUE(python_reads("weights", file("several"),
                           {{"safetensors", tensors},
                            {"transformers", tensors},
                            {"torch.distributed.checkpoint", tensors}}));
}

TEST_F(Interchange, WeReadPythonsSafetensors) {
  std::string output;
  ASSERT_EQ(run("write_for_levin.py", "'" + file("python.safetensors").string() + "'", &output), 0)
      << output;
  const levin::files::SafetensorsFile read(file("python.safetensors"));
  EXPECT_EQ(read.entries().size(), std::size(kCases) + 2);
  for (const auto& [dtype, python, type] : kCases) {
    const TensorEntry* found = read.find(dtype);
    ASSERT_NE(found, nullptr) << dtype;
    EXPECT_EQ(found->dtype, dtype);
    EXPECT_EQ(found->shape, (std::vector<int64_t>{2, 3}));
    const auto wanted = at::arange(6).to(type);
    ASSERT_EQ(found->data.size(), wanted.nbytes()) << dtype;
    EXPECT_EQ(std::memcmp(found->data.data(), wanted.const_data_ptr(), wanted.nbytes()), 0)
        << dtype;
  }
  EXPECT_TRUE(read.find("scalar")->shape.empty());
  EXPECT_EQ(read.find("empty")->shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(read.metadata(), (levin::files::TensorMetadata{{"note", "caf\xc3\xa9"}}));
}

TEST_F(Interchange, OurSafetensorsBytesAreThoseOfPythonsWriter) {
  std::string output;
  ASSERT_EQ(run("write_for_levin.py", "'" + file("python.safetensors").string() + "'", &output), 0)
      << output;
  const levin::files::SafetensorsFile read(file("python.safetensors"));
  levin::files::write_safetensors(file("ours.safetensors"), read.entries(), read.metadata());
  EXPECT_EQ(bytes_of(file("ours.safetensors")), bytes_of(file("python.safetensors")));
}

TEST_F(Interchange, TensorBoardReadsOurEvents) {
  {
    levin::files::EventFile events(file("run"));
    for (int64_t step = 0; step < 20; ++step)
      events.add_scalar("train_loss", 0.25 * step, step * 50);
    events.add_scalar("val_acc", 0.5, 1000000);
    events.add_text("hparams", "lr: *0.1*", 0);
  }
  json losses = json::array();
  for (int64_t step = 0; step < 20; ++step) losses.push_back({step * 50, 0.25 * step});
  EXPECT_TRUE(python_reads("events", file("run"),
                           {{"scalars", {{"train_loss", losses}, {"val_acc", {{1000000, 0.5}}}}},
                            {"texts", {{"hparams", {{0, "lr: *0.1*"}}}}}}));
}

TEST_F(Interchange, TensorBoardDropsWhatWasLoggedAfterTheStepThatARunGoesOnFrom) {
  for (const int64_t begin : {0, 3}) {
    levin::files::EventFile events(file("run"));
    if (begin > 0) events.add_session_start(begin);
    for (int64_t step = begin; step < begin + 5; ++step) {
      events.add_scalar("loss", static_cast<double>(begin + step), step);
    }
  }
  const json losses = {{0, 0}, {1, 1}, {2, 2}, {3, 6}, {4, 7}, {5, 8}, {6, 9}, {7, 10}};
  EXPECT_TRUE(python_reads("events", file("run"),
                           {{"scalars", {{"loss", losses}}}, {"texts", json::object()}}));
}

TEST_F(Interchange, OtherContentsThanExpectedAreFound) {
  levin::files::EventFile(file("run")).add_scalar("train_loss", 0.25, 1);
  EXPECT_FALSE(
      python_reads("events", file("run"),
                   {{"scalars", {{"train_loss", {{1, 0.5}}}}}, {"texts", json::object()}}));
}

}  // namespace
