// Rows of every kind: tokens, labels and packed rows are what TRL and transformers make of the same files (rows.py).
#include "levin/rows/rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

#include "levin/base/random.h"
#include "levin/data/sampler.h"
#include "levin/rows/batches/rows_dataset.h"
#include "tests/oracle/python.h"

namespace levin::text {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 17;
constexpr int64_t kEpoch = 2;

class RowsOfPython : public test::PythonTest {
 protected:
  /// False where the Python has no TRL.
  bool make() {
    std::string output;
    if (run("rows.py", "'" + file("").string() + "' " + std::to_string(derive_seed(kSeed, kEpoch)),
            &output) == 0) {
      return true;
    }
    EXPECT_NE(output.find("ModuleNotFoundError"), std::string::npos) << output;
    return false;
  }
  json read(const char* name) const { return json::parse(std::ifstream(file(name))); }
};

RowsOptions options_of(const json& given) {
  RowsOptions options;
  options.task = given.value("task", "");
  options.packing = given.value("packing", false);
  options.packing_strategy = given.value("packing_strategy", "bfd");
  if (given.contains("max_length")) options.max_length = given["max_length"].get<int64_t>();
  options.truncation_mode = given.value("truncation_mode", "keep_start");
  if (given.contains("completion_only_loss")) {
    options.completion_only_loss = given["completion_only_loss"].get<bool>();
  }
  options.assistant_only_loss = given.value("assistant_only_loss", false);
  options.mlm_probability = given.value("mlm_probability", 0.15);
  options.mask_replace_prob = given.value("mask_replace_prob", 0.8);
  options.random_replace_prob = given.value("random_replace_prob", 0.1);
  return options;
}

json list_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return tensor.item<int64_t>();
  json list = json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(list_of(tensor[i]));
  return list;
}

/// A packed row as TRL has it: without padding, with the lengths of its documents.
json packed(const Batch& batch) {
  const at::Tensor document = batch["document"][0];
  const int64_t size = document.ge(0).sum().item<int64_t>();
  json lengths = json::array();
  for (int64_t i = 0; i <= document.max().item<int64_t>(); ++i) {
    lengths.push_back(document.eq(i).sum().item<int64_t>());
  }
  return {{"input_ids", list_of(batch["input_ids"][0].narrow(0, 0, size))},
          {"labels", list_of(batch["labels"][0].narrow(0, 0, size))},
          {"seq_lengths", lengths}};
}

TEST_F(RowsOfPython, TokensLabelsAndPackedRowsAreThoseOfTrlAndTransformers) {
  if (!make()) GTEST_SKIP() << "the Python has no trl";
  int64_t samples = 0;
  for (const json& one : read("cases.json")) {
    const std::string what = one["file"].get<std::string>() + " " + one["options"].dump();
    const auto tokenizer = Tokenizer::from_pretrained(file(one["tokenizer"].get<std::string>()));
    RowsOptions options = options_of(one["options"]);
    options.cache_dir = file("cache").string();
    const auto made = rows(file(one["file"].get<std::string>() + ".jsonl"), tokenizer, options);
    const DatasetPtr dataset = made->train_dataset();
    ASSERT_EQ(dataset->size(), std::ssize(one["samples"])) << what;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      const json& wanted = one["samples"][static_cast<size_t>(i)];
      const Batch batch = dataset->get(std::vector<int64_t>{i});
      const json row = options.packing ? packed(batch) : json();
      for (const auto& [name, value] : wanted.items()) {
        const json found = options.packing ? row[name] : list_of(batch[name][0]);
        ASSERT_EQ(found, value) << what << " row " << i << " " << name;
      }
      ++samples;
    }
  }
  EXPECT_GT(samples, 1500);
}

TEST_F(RowsOfPython, LengthGroupsAndMasksAreThoseOfTransformers) {
  if (!make()) GTEST_SKIP() << "the Python has no trl";
  const json drawn = read("drawn.json");
  const auto sampler =
      length_grouped_sampler(drawn["lengths"].get<std::vector<int64_t>>(), 8, kSeed);
  sampler->start(kEpoch, 0);
  std::vector<int64_t> order(static_cast<size_t>(sampler->size()));
  ASSERT_EQ(sampler->next(order), std::ssize(order));
  EXPECT_EQ(order, drawn["order"].get<std::vector<int64_t>>());

  const json& masks = drawn["masks"];
  const auto tokenizer = Tokenizer::from_pretrained(file("encoder"));
  const auto id = masks["id"].get<int32_t>();
  const int32_t mask = *tokenizer.special_token_id("mask_token");
  const std::vector<int32_t> tokens(masks["tokens"].get<size_t>(), id);
  std::vector<int64_t> ids(tokens.begin(), tokens.end()), labels(tokens.size(), -100);
  const RowsOptions usual;
  row::mask_tokens(tokens, 4,
                   {.mask_id = mask,
                    .vocab_size = tokenizer.vocab_size(),
                    .drawn = usual.mlm_probability,
                    .masked = usual.mask_replace_prob,
                    .replaced = usual.random_replace_prob},
                   ids.data(), labels.data());
  double count = 0, masked = 0, kept = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (labels[i] == -100) continue;
    ++count;
    masked += ids[i] == mask;
    kept += ids[i] == id;
  }
  // Both were drawn: the difference of two such numbers, within 4 deviations.
  const auto near = [](double ours, double theirs, double of) {
    EXPECT_LT(std::abs(ours - theirs), 4 * std::sqrt(2 * theirs * (1 - theirs) / of));
  };
  near(count / static_cast<double>(tokens.size()), masks["drawn"],
       static_cast<double>(tokens.size()));
  near(masked / count, masks["masked"], count);
  near(kept / count, masks["kept"], count);
}

}  // namespace
}  // namespace levin::text
