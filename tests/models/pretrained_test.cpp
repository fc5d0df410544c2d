#include "levin/models/pretrained.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/wrap.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

using test::error_of;
using test::put;
using test::Scratch;
using test::small;
using test::write_classifier;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

at::Tensor tokens(int64_t rows, int64_t length, int64_t seed) {
  torch::manual_seed(seed);
  return at::randint(3, 61, {rows, length}, at::kLong);
}

bool near(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, /*rtol=*/1e-5, /*atol=*/1e-5);
}

struct Kind {
  const char* name;
  std::string (*config)();
  const char* task;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class PretrainedKinds : public ::testing::TestWithParam<Kind> {};

// Two documents in a row, and padding behind them, give what each gives alone.
TEST_P(PretrainedKinds, DocumentsOfAPackedRowDoNotSeeEachOther) {
  const auto net = small(GetParam().config(), GetParam().task);
  net->eval();
  const at::Tensor first = tokens(1, 7, 1), second = tokens(1, 5, 2);
  const at::Tensor pad = at::zeros({1, 3}, at::kLong);
  const at::Tensor document =
      at::cat({at::full({1, 7}, 0, at::kLong), at::full({1, 5}, 1, at::kLong), pad - 1}, 1);
  const Output packed =
      net->forward({{"input_ids", at::cat({first, second, pad}, 1)}, {"document", document}});
  const Output one = net->forward({{"input_ids", first}});
  const Output two = net->forward({{"input_ids", second}});
  EXPECT_TRUE(near(packed.hidden.narrow(1, 0, 7), one.hidden));
  EXPECT_TRUE(near(packed.hidden.narrow(1, 7, 5), two.hidden));
  // Without their numbers the second sees the first.
  const Output joined = net->forward({{"input_ids", at::cat({first, second, pad}, 1)}});
  EXPECT_FALSE(near(joined.hidden.narrow(1, 7, 5), two.hidden));
}

TEST_P(PretrainedKinds, PaddingOnEitherSideChangesNothing) {
  const auto net = small(GetParam().config(), GetParam().task);
  net->eval();
  const at::Tensor text = tokens(1, 6, 3), pad = at::zeros({1, 4}, at::kLong);
  const at::Tensor ones = at::ones({1, 6}, at::kLong);
  const Output alone = net->forward({{"input_ids", text}});
  const Output right = net->forward(
      {{"input_ids", at::cat({text, pad}, 1)}, {"attention_mask", at::cat({ones, pad}, 1)}});
  EXPECT_TRUE(near(right.hidden.narrow(1, 0, 6), alone.hidden));
  const at::Tensor places = at::cat({pad, at::arange(6).unsqueeze(0)}, 1);
  const Output left = net->forward({{"input_ids", at::cat({pad, text}, 1)},
                                    {"attention_mask", at::cat({pad, ones}, 1)},
                                    {"position_ids", places}});
  EXPECT_TRUE(near(left.hidden.narrow(1, 4, 6), alone.hidden));
}

TEST_P(PretrainedKinds, ActivationCheckpointsGiveTheSameGradients) {
  const auto plain = small(GetParam().config(), GetParam().task);
  torch::manual_seed(0);
  const auto checkpointed =
      small(GetParam().config(), GetParam().task, {.activation_checkpointing = true});
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : checkpointed->named_parameters())
      parameter.value().detach().copy_(*plain->named_parameters().find(parameter.key()));
  }
  const Batch batch{{"input_ids", tokens(2, 9, 4)}};
  plain->forward(batch).hidden.pow(2).sum().backward();
  checkpointed->forward(batch).hidden.pow(2).sum().backward();
  for (const auto& parameter : plain->named_parameters()) {
    const at::Tensor& other = checkpointed->named_parameters().find(parameter.key())->grad();
    ASSERT_EQ(parameter.value().grad().defined(), other.defined()) << parameter.key();
    if (other.defined()) EXPECT_TRUE(at::equal(parameter.value().grad(), other)) << parameter.key();
  }
}

TEST_P(PretrainedKinds, BuildsWithoutMemoryAndGetsTheSameValues) {
  torch::manual_seed(5);
  const auto ordinary = small(GetParam().config(), GetParam().task);
  torch::manual_seed(5);
  const auto net = init_on_meta([] { return small(GetParam().config(), GetParam().task); });
  EXPECT_TRUE(is_on_meta(*net));
  materialize(*net);
  for (const auto& parameter : ordinary->named_parameters()) {
    EXPECT_TRUE(at::equal(parameter.value(), *net->named_parameters().find(parameter.key())))
        << parameter.key();
  }
  const Batch batch{{"input_ids", tokens(1, 5, 6)}};
  net->eval();
  ordinary->eval();
  EXPECT_TRUE(at::equal(net->forward(batch).hidden, ordinary->forward(batch).hidden));
}

TEST_P(PretrainedKinds, EachBlockIsAUnit) {
  const auto net = small(GetParam().config(), GetParam().task);
  int64_t units = 0;
  for (const auto& module : net->modules()) units += is_unit(*module) ? 1 : 0;
  EXPECT_EQ(units,
            net->config().integer(net->config().has("n_layer") ? "n_layer" : "num_hidden_layers"));
}

INSTANTIATE_TEST_SUITE_P(Bodies, PretrainedKinds,
                         ::testing::Values(Kind{"decoder", test::small_qwen3, "text-generation"},
                                           Kind{"encoder", test::small_bert, "fill-mask"},
                                           Kind{"modernbert", test::small_modernbert, "fill-mask"},
                                           Kind{"gpt2", test::small_gpt2, "text-generation"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Pretrained, ALossOfAPackedRowIsThatOfItsDocuments) {
  const auto net = small(test::small_qwen3(), "text-generation");
  const at::Tensor first = tokens(1, 7, 1), second = tokens(1, 5, 2);
  const auto of = [&](const at::Tensor& ids) {
    return net->forward({{"input_ids", ids}, {"labels", ids}}).loss.item<double>();
  };
  const at::Tensor ids = at::cat({first, second}, 1);
  const at::Tensor document =
      at::cat({at::zeros({1, 7}, at::kLong), at::ones({1, 5}, at::kLong)}, 1);
  const double packed = net->forward({{"input_ids", ids}, {"labels", ids}, {"document", document}})
                            .loss.item<double>();
  EXPECT_NEAR(packed, (6 * of(first) + 4 * of(second)) / 10, 1e-5);
}

TEST(Pretrained, AHeadOfAnotherSizeIsDrawnAnewAndNamed) {
  const Scratch scratch;
  write_classifier(scratch / "model", 3);
  const auto same = from_pretrained(scratch / "model", {.num_labels = 3});
  EXPECT_THAT(same->drawn(), ElementsAre());
  const auto other = from_pretrained(scratch / "model", {.num_labels = 7});
  EXPECT_THAT(other->drawn(), UnorderedElementsAre("classifier.weight", "classifier.bias"));
  const Output output = other->forward({{"input_ids", tokens(2, 5, 1)}});
  EXPECT_EQ(output.logits.sizes(), at::IntArrayRef({2, 7}));
  EXPECT_TRUE(at::isfinite(output.logits).all().item<bool>());
  // The body is the file's.
  const auto whole = load_weights(scratch / "model" / "model.safetensors");
  for (const auto& parameter : other->named_parameters()) {
    if (!parameter.key().starts_with("bert.")) continue;
    EXPECT_TRUE(at::equal(parameter.value(), whole.tensor(parameter.key()))) << parameter.key();
  }
  other->save_pretrained(scratch / "again");
  EXPECT_EQ(from_pretrained(scratch / "again")->config().num_labels(), 7);
}

TEST(Pretrained, AWeightWhoseBiasTheFileDoesNotHaveStays) {
  const Scratch scratch;
  write_classifier(scratch / "model", 3);
  const auto file = scratch / "model" / "model.safetensors";
  State weights = load_weights(file), rest;
  for (const auto& [name, value] : weights.values()) {
    if (name != "classifier.bias") rest.set(name, weights.tensor(name).clone());
  }
  save_weights(file, rest);
  const auto net = from_pretrained(scratch / "model");
  EXPECT_THAT(net->drawn(), ElementsAre("classifier.bias"));
  EXPECT_TRUE(
      at::equal(net->named_parameters()["classifier.weight"], rest.tensor("classifier.weight")));
  EXPECT_TRUE(net->named_parameters()["classifier.bias"].eq(0).all().item<bool>());
}

TEST(Pretrained, ParametersLieInTheFileUntilTheyAreWritten) {
  const Scratch scratch;
  write_classifier(scratch / "model", 3);
  const std::string bytes = test::get(scratch / "model" / "model.safetensors");
  const auto net = from_pretrained(scratch / "model");
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.add_(1.0);
  }
  EXPECT_EQ(test::get(scratch / "model" / "model.safetensors"), bytes);
  net->save_pretrained(scratch / "model");  // over the file that they came from
  const auto again = from_pretrained(scratch / "model");
  for (const auto& parameter : net->named_parameters())
    EXPECT_TRUE(at::equal(parameter.value(), *again->named_parameters().find(parameter.key())));
}

TEST(Pretrained, TypesOfWeightsAreAskedForOrTheFiles) {
  const Scratch scratch;
  small(test::small_qwen3(), "text-generation", {.dtype = "bfloat16"})
      ->save_pretrained(scratch / "model");
  EXPECT_EQ(from_pretrained(scratch / "model")->parameters()[0].scalar_type(), at::kBFloat16);
  const auto wide = from_pretrained(scratch / "model", {.dtype = "float32"});
  for (const at::Tensor& parameter : wide->parameters())
    EXPECT_EQ(parameter.scalar_type(), at::kFloat);
  EXPECT_EQ(wide->config().dtype(), "float32");
  EXPECT_THAT(error_of([&] { from_pretrained(scratch / "model", {.dtype = "int8"}); }),
              HasSubstr("models.dtype: got dtype 'int8'"));
}

/// What opening a folder says.
std::string heard_of(const std::filesystem::path& folder, const PretrainedOptions& options = {}) {
  std::string heard;
  const log::Sink before = log::set_sink([&](log::Level level, std::string_view text) {
    heard.append(level == log::Level::kWarn ? "warn: " : "info: ").append(text).append("\n");
  });
  from_pretrained(folder, options);
  log::set_sink(before);
  return heard;
}

TEST(Pretrained, FilesOfAnotherTypeThanTheModelAreNamed) {
  const Scratch scratch;
  small(test::small_bert(), "feature-extraction")->save_pretrained(scratch / "model");
  EXPECT_EQ(heard_of(scratch / "model"), "");
  EXPECT_THAT(
      heard_of(scratch / "model", {.dtype = "bfloat16"}),
      ::testing::ContainsRegex("^info: models: .*/model: [0-9]+ tensors are cast from Float to "
                               "the module's BFloat16 \\(.*embeddings.*and [0-9]+ more\\)\n$"));
  std::string config = test::get(scratch / "model/config.json");
  const std::string dtype = "\"float32\"";
  ASSERT_NE(config.find(dtype), std::string::npos);
  config.replace(config.find(dtype), dtype.size(), "\"float16\"");
  put(scratch / "model/config.json", config);
  EXPECT_THAT(heard_of(scratch / "model"),
              ::testing::ContainsRegex("^warn: models: .*cast from Float to the module's Half"));
}

TEST(Pretrained, KeysThatNobodyKnowsAreWrittenBack) {
  const Scratch scratch;
  Config config = Config::from_json(test::small_bert());
  config.set("my_own_key", std::string("kept"));
  from_config(config, {.task = "fill-mask"})->save_pretrained(scratch / "model");
  EXPECT_EQ(Config::from_folder(scratch / "model").text("my_own_key"), "kept");
}

TEST(Pretrained, FilesOfTheTokenizerGoAlong) {
  const Scratch scratch;
  write_classifier(scratch / "model", 2);
  put(scratch / "model" / "tokenizer.json", "{}");
  put(scratch / "model" / "unknown.bin", "x");
  from_pretrained(scratch / "model")->save_pretrained(scratch / "copy");
  EXPECT_EQ(test::get(scratch / "copy" / "tokenizer.json"), "{}");
  EXPECT_FALSE(std::filesystem::exists(scratch / "copy" / "unknown.bin"));
}

TEST(Pretrained, SentencesAreTheMeanOfTheirTokensAtLengthOne) {
  const Scratch scratch;
  small(test::small_bert(), "feature-extraction")->save_pretrained(scratch / "model");
  put(scratch / "model" / "modules.json",
      R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
          {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
          {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}])");
  std::filesystem::create_directories(scratch / "model" / "1_Pooling");
  put(scratch / "model" / "1_Pooling" / "config.json",
      R"({"word_embedding_dimension": 24, "pooling_mode_mean_tokens": true})");
  const auto net = from_pretrained(scratch / "model");
  EXPECT_EQ(net->task(), "sentence-similarity");
  net->eval();
  const at::Tensor ids = tokens(2, 5, 1);
  at::Tensor mask = at::ones({2, 5}, at::kLong);
  mask[1].narrow(0, 3, 2).zero_();
  const Output output = net->forward({{"input_ids", ids}, {"attention_mask", mask}});
  const at::Tensor mean = output.hidden[1].narrow(0, 0, 3).mean(0);
  EXPECT_TRUE(near(output.embedding[1], mean / mean.norm()));
  net->save_pretrained(scratch / "copy");
  EXPECT_TRUE(at::equal(from_pretrained(scratch / "copy")
                            ->forward({{"input_ids", ids}, {"attention_mask", mask}})
                            .embedding,
                        output.embedding));
  put(scratch / "model" / "1_Pooling" / "config.json", R"({"pooling_mode": ["cls", "mean"]})");
  EXPECT_EQ(from_pretrained(scratch / "model")->forward({{"input_ids", ids}}).embedding.size(1),
            48);
  std::filesystem::create_directories(scratch / "model" / "2_Normalize");
  put(scratch / "model" / "2_Normalize" / "config.json",
      R"({"module_input_name": "token_embeddings"})");
  EXPECT_THAT(error_of([&] { from_pretrained(scratch / "model"); }),
              HasSubstr("got module_input_name = \"token_embeddings\", wanted"));
}

}  // namespace
}  // namespace levin::models
