// Models of each family and head against transformers: logits, loss and every gradient of the same folders and
// batches, padded on either side; what levin writes back is the same to the bit, and transformers opens it.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained.h"
#include "tests/oracle/python.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, at::Tensor>;

// Of the largest number of a tensor.
constexpr double kTolerance = 1e-5;

Tensors tensors_of(const fs::path& file) {
  Tensors tensors;
  const State state = load_weights(file);
  for (const auto& [name, value] : state.values()) tensors.emplace(name, state.tensor(name));
  return tensors;
}

class ModelFolders : public test::PythonTest {};

Batch batch_of(const Tensors& expected, const std::string& padding) {
  Batch batch;
  for (const char* field : {"input_ids", "attention_mask", "token_type_ids", "labels",
                            "start_positions", "end_positions"}) {
    const auto found = expected.find(padding + "." + field);
    if (found != expected.end()) batch.set(field, found->second);
  }
  return batch;
}

double largest(const at::Tensor& tensor) { return tensor.abs().max().item<double>(); }

/// Values of one a token are compared where the token is no padding.
at::Tensor of_text(const at::Tensor& values, const Batch& batch) {
  const at::Tensor& ids = batch["input_ids"];
  const bool by_token = values.dim() == 3 && values.size(1) == ids.size(1);
  if (!by_token || !batch.contains("attention_mask")) return values;
  return values.masked_fill((batch["attention_mask"] == 0).unsqueeze(-1), 0.0);
}

void compare(Pretrained& net, const Tensors& expected, const std::string& padding) {
  SCOPED_TRACE(padding);
  const Batch batch = batch_of(expected, padding);
  Output output = net.forward(batch);
  const at::Tensor& wanted = expected.at(padding + ".logits");
  const at::Tensor& values = output.logits.defined() ? output.logits : output.hidden;
  ASSERT_EQ(values.sizes(), wanted.sizes());
  EXPECT_LE(largest(of_text(values - wanted, batch)), kTolerance * largest(of_text(wanted, batch)));
  if (!output.logits.defined()) {
    const auto mask = batch.contains("attention_mask") ? batch["attention_mask"].unsqueeze(-1)
                                                       : at::ones({1, 1, 1});
    output.loss = (output.hidden * mask).pow(2).mean();
  }
  const at::Tensor& loss = expected.at(padding + ".loss");
  EXPECT_LE(largest(output.loss - loss), kTolerance * largest(loss));
  net.zero_grad();
  output.loss.backward();
  double all = 0;
  for (const auto& [name, tensor] : expected) {
    if (name.starts_with(padding + ".gradient.")) all = std::max(all, largest(tensor));
  }
  size_t compared = 0;
  for (const auto& parameter : net.named_parameters()) {
    const auto found = expected.find(padding + ".gradient." + parameter.key());
    const at::Tensor& gradient = parameter.value().grad();
    ASSERT_EQ(found != expected.end(), gradient.defined()) << parameter.key();
    if (!gradient.defined()) continue;
    // A bias of keys has a gradient of nothing but rounding.
    const double scale = std::max(largest(found->second), 0.1 * all);
    EXPECT_LE(largest(gradient - found->second), kTolerance * scale) << parameter.key();
    ++compared;
  }
  EXPECT_GT(compared, 10U);
}

TEST_F(ModelFolders, GiveTheNumbersOfTransformersAndGoBack) {
  std::string output;
  const fs::path root = file("folders");
  fs::create_directories(root);
  ASSERT_EQ(run("model_folders.py", "'" + root.string() + "'", &output), 0) << output;
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    try {
      const Tensors expected = tensors_of(entry.path() / "expected.safetensors");
      const auto net = from_pretrained(entry.path());
      EXPECT_TRUE(net->drawn().empty());
      net->eval();
      for (const char* padding : {"none", "right", "left"}) {
        if (expected.contains(std::string(padding) + ".logits")) compare(*net, expected, padding);
      }
      net->save_pretrained(entry.path() / "back");
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    ++count;
  }
  EXPECT_GT(count, 80U);
  ASSERT_EQ(run("model_folders.py", "'" + root.string() + "' --back", &output), 0) << output;
  EXPECT_NE(output.find(std::to_string(count) + " folders"), std::string::npos) << output;
}

// LoRA, rank-stabilised, with patterns, DoRA; of matrices that lie either way.
TEST_F(ModelFolders, AdaptersOfPeftLoadHereAndOursThere) {
  std::string output;
  const fs::path root = file("adapters");
  fs::create_directories(root);
  ASSERT_EQ(run("adapters.py", "'" + root.string() + "'", &output), 0) << output;
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    try {
      const at::Tensor ids = tensors_of(entry.path() / "expected.safetensors").at("none.input_ids");
      const at::Tensor wanted =
          tensors_of(entry.path() / "adapter_logits.safetensors").at("logits");
      const auto net = from_pretrained(entry.path());
      net->eval();
      const at::NoGradGuard no_grad;
      const auto logits = [&] { return net->forward({{"input_ids", ids}}).logits; };
      const at::Tensor before = logits();
      lora::load(*net, entry.path() / "adapter");
      EXPECT_LE(largest(logits() - wanted), kTolerance * largest(wanted));
      EXPECT_GT(largest(before - wanted), 100 * kTolerance * largest(wanted));
      lora::save(*net, entry.path() / "adapter_back");
      net->save_pretrained(entry.path() / "merged_back", {.merge = true});
      const at::Tensor adapted = logits();
      lora::merge(*net);
      EXPECT_LE(largest(logits() - wanted), kTolerance * largest(wanted));
      lora::unmerge(*net);
      EXPECT_TRUE(at::equal(logits(), adapted));
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    ++count;
  }
  EXPECT_EQ(count, 10U);
  ASSERT_EQ(run("adapters.py", "'" + root.string() + "' --back", &output), 0) << output;
  EXPECT_NE(output.find("10 adapters"), std::string::npos) << output;
}

class MiniLm : public test::PythonTest {
 protected:
  void SetUp() override {
    const char* given = std::getenv("LEVIN_MINILM");
    model_ = given != nullptr ? given : test::source_dir() + "/.deps/minilm";
    if (!fs::exists(model_ / "model.safetensors")) GTEST_SKIP() << "scripts/minilm.sh fetches it";
    PythonTest::SetUp();
  }
  fs::path model_;
};

TEST_F(MiniLm, AFolderIsComparedByItsScript) {
  const fs::path program = fs::path(test::levin_command()).parent_path() / "model_numbers";
  std::string output;
  EXPECT_EQ(run("compare_folder.py",
                "'" + model_.string() + "' --program '" + program.string() + "'", &output),
            0)
      << output;
  EXPECT_NE(output.find("BertModel, largest difference"), std::string::npos) << output;
}

TEST_F(MiniLm, OddSettingsGiveTheVectorsOfSentenceTransformersOrAreNamed) {
  std::string output;
  const fs::path root = file("folders");
  fs::create_directories(root);
  ASSERT_EQ(run("odd_sentences.py", "'" + model_.string() + "' '" + root.string() + "'", &output),
            0)
      << output;
  std::vector<std::string> texts;
  std::ifstream lines(root / "sentences.txt");
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  size_t count = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    ++count;
    const std::string refused =
        nlohmann::json::parse(test::bytes_of(entry.path() / "case.json"))["refused"];
    std::string error;
    try {
      auto encoder = SentenceEncoder::from_pretrained(entry.path());
      if (refused.empty()) {
        const at::Tensor vectors = encoder.encode(texts);
        const at::Tensor wanted =
            load_weights(entry.path() / "vectors.safetensors").tensor("vectors");
        ASSERT_EQ(vectors.sizes(), wanted.sizes());
        EXPECT_LE(largest(vectors - wanted), kTolerance * largest(wanted));
      }
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    EXPECT_EQ(error.empty(), refused.empty()) << error;
    EXPECT_NE(error.find(refused), std::string::npos) << error;
  }
  EXPECT_EQ(count, 12U);
}

// Real weights, real length limits: LEVIN_SENTENCES=10000 takes more of them.
TEST_F(MiniLm, SentencesAreThoseOfSentenceTransformers) {
  const char* given = std::getenv("LEVIN_SENTENCES");
  std::string output;
  ASSERT_EQ(run("sentences.py",
                "'" + model_.string() + "' '" + file("").string() + "' " +
                    (given != nullptr ? given : "300"),
                &output),
            0)
      << output;
  std::vector<std::string> texts;
  std::ifstream lines(file("sentences.txt"));
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  const at::Tensor wanted = load_weights(file("vectors.safetensors")).tensor("vectors");
  auto encoder = SentenceEncoder::from_pretrained(model_);
  EXPECT_EQ(encoder.max_seq_length(), 256);
  const at::Tensor vectors = encoder.encode(texts);
  ASSERT_EQ(vectors.sizes(), wanted.sizes());
  EXPECT_LE(largest(vectors - wanted), kTolerance * largest(wanted));
}

}  // namespace
}  // namespace levin::models
