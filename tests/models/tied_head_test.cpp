#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/pretrained.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

using test::Scratch;
using test::small;
using ::testing::HasSubstr;

constexpr const char* kWords = "transformer.wte.weight";
constexpr const char* kHead = "lm_head.weight";

/// A folder of a small GPT-2 or BERT, whose weights a function changes.
template <class Change>
void write(const std::filesystem::path& folder, const std::string& config, const std::string& task,
           Change&& change) {
  small(config, task)->save_pretrained(folder);
  State weights = load_weights(folder / "model.safetensors");
  State copies;
  for (const auto& [name, value] : weights.values()) copies.set(name, weights.tensor(name).clone());
  change(copies);
  save_weights(folder / "model.safetensors", copies);
}

at::Tensor logits_of(Pretrained& net) {
  net.eval();
  return net.forward({{"input_ids", torch::tensor({{5, 6, 7, 8}}, at::kLong)}}).logits;
}

TEST(TiedHead, AMatrixOfOtherValuesIsAHeadOfItsOwnAndIsWrittenBack) {
  const Scratch scratch;
  at::Tensor words, head;
  write(scratch / "model", test::small_gpt2(), "text-generation", [&](State& weights) {
    words = weights.tensor(kWords).clone();
    head = at::flip(words, {0});
    weights.set(kHead, head.clone());
  });
  std::string heard;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { heard.append(text); });
  const auto net = from_pretrained(scratch / "model");
  log::set_sink(before);
  EXPECT_THAT(heard,
              HasSubstr("holds different values for lm_head.weight and transformer.wte.weight"));
  EXPECT_TRUE(net->drawn().empty());
  EXPECT_FALSE(net->config().boolean("tie_word_embeddings", true));
  EXPECT_TRUE(at::equal(net->named_parameters()[kHead], head));
  EXPECT_TRUE(at::equal(net->named_parameters()[kWords], words));
  net->save_pretrained(scratch / "again");
  const auto again = from_pretrained(scratch / "again");
  EXPECT_TRUE(at::equal(logits_of(*again), logits_of(*net)));
  EXPECT_TRUE(at::equal(again->named_parameters()[kHead], head));
}

TEST(TiedHead, OneOfEqualValuesOrInThePlaceOfTheEmbeddingIsTied) {
  const Scratch scratch;
  write(scratch / "equal", test::small_gpt2(), "text-generation",
        [](State& weights) { weights.set(kHead, weights.tensor(kWords).clone()); });
  const auto equal = from_pretrained(scratch / "equal");
  write(scratch / "alone", test::small_gpt2(), "text-generation", [&](State& weights) {
    for (const auto& parameter : equal->named_parameters())
      weights.set(parameter.key(), parameter.value().detach().clone());
    weights.set(kHead, weights.tensor(kWords));
    weights.erase(kWords);
  });
  const auto alone = from_pretrained(scratch / "alone");
  for (const auto& net : {equal, alone}) {
    EXPECT_EQ(net->named_parameters().find(kHead), nullptr);
    EXPECT_TRUE(net->config().boolean("tie_word_embeddings", false));
    EXPECT_TRUE(net->drawn().empty());
  }
  EXPECT_TRUE(at::equal(logits_of(*equal), logits_of(*alone)));
}

TEST(TiedHead, BiasesThatAreTiedToEachOtherGoTheSameWay) {
  const Scratch scratch;
  const std::string bias = "cls.predictions.bias", second = "cls.predictions.decoder.bias";
  at::Tensor values;
  write(scratch / "second", test::small_bert(), "fill-mask", [&](State& weights) {
    values = at::rand_like(weights.tensor(bias));
    weights.erase(bias);
    weights.set(second, values.clone());
  });
  const auto net = from_pretrained(scratch / "second");
  EXPECT_TRUE(net->drawn().empty());
  EXPECT_TRUE(at::equal(net->named_parameters()[bias], values));
  write(scratch / "differ", test::small_bert(), "fill-mask",
        [&](State& weights) { weights.set(second, values.clone()); });
  EXPECT_THAT(
      test::error_of([&] { from_pretrained(scratch / "differ"); }),
      HasSubstr(
          "models.weights: " + (scratch / "differ").string() +
          " holds different values for cls.predictions.bias and cls.predictions.decoder.bias"));
}

}  // namespace
}  // namespace levin::models
