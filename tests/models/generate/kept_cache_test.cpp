// A chat whose turns go on from one cache, beside one that is computed anew each turn: the same tokens, and as
// many positions read as are new.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/data/batch.h"
#include "levin/models/generate/options.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::models {
namespace {

using test::error_of;
using test::small;
using ::testing::HasSubstr;

/// Layers with a window of 16 and without one in turns, as in Gemma 3; 0: none of them has one.
std::string of_windows(int64_t window) {
  return R"({"model_type": "gemma3_text", "vocab_size": 61, "hidden_size": 24, "intermediate_size": 40,
             "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
             "sliding_window": )" +
         std::to_string(window) + R"(, "layer_types": ["sliding_attention", "full_attention",
             "sliding_attention", "full_attention"], "max_position_embeddings": 256,
             "query_pre_attn_scalar": 8, "initializer_range": 0.2, "pad_token_id": 0})";
}

std::string qwen3() { return test::small_qwen3(); }
std::string gpt2() {
  std::string config = test::small_gpt2();
  return config.replace(config.find("\"n_positions\": 32"), 17, "\"n_positions\": 99");
}
std::string narrow_window() { return of_windows(16); }
std::string wide_window() { return of_windows(200); }

std::shared_ptr<Pretrained> chat_model(const std::string& config) {
  torch::manual_seed(3);
  const auto net = small(config, "text-generation");
  net->eval();
  return net;
}

at::Tensor random_tokens(int64_t count, int64_t seed) {
  torch::manual_seed(seed);
  return at::randint(3, 61, {1, count}, at::kLong);
}

/// The tokens of a turn with its cache, after they were compared with those without it, their scores too.
Generated turn(Pretrained& net, const at::Tensor& prompt, KeptCache& kept, int64_t count = 7) {
  std::vector<at::Tensor> mine, theirs;
  const Generated anew = net.generate(
      prompt, {.max_new_tokens = count,
               .on_scores = [&](const at::Tensor& scores) { theirs.push_back(scores.clone()); }});
  Generated written = net.generate(
      prompt, {.max_new_tokens = count, .kept = &kept, .on_scores = [&](const at::Tensor& scores) {
                 mine.push_back(scores.clone());
               }});
  EXPECT_TRUE(at::equal(written.sequences, anew.sequences));
  EXPECT_EQ(anew.num_computed, anew.sequences.size(1) - 1);
  EXPECT_LT((at::stack(mine) - at::stack(theirs)).abs().max().item<double>(), 2e-5);
  EXPECT_EQ(kept.size(), written.sequences.size(1) - 1);
  return written;
}

class KeptCaches : public ::testing::TestWithParam<std::string (*)()> {};

TEST_P(KeptCaches, TurnsThatGoOnReadWhatIsNew) {
  const auto net = chat_model(GetParam()());
  KeptCache kept;
  at::Tensor text = random_tokens(5, 1);
  for (int64_t round = 0; round < 5; ++round) {
    const int64_t before = kept.size();
    const Generated written = turn(*net, text, kept);
    EXPECT_EQ(written.num_computed, written.sequences.size(1) - 1 - before) << round;
    // From one new token, as a line's end may be, to many.
    text = at::cat({written.sequences, random_tokens(1 + 2 * round, 2 + round)}, 1);
  }
}

// As where a template leaves out what an earlier turn thought.
TEST_P(KeptCaches, AreCutBackToWhereAPromptGoesAnotherWay) {
  const auto net = chat_model(GetParam()());
  const bool forgets = GetParam() == narrow_window;
  KeptCache kept;
  const Generated first = turn(*net, random_tokens(20, 1), kept);
  const at::Tensor other = first.sequences.narrow(1, 0, 22).clone();
  const int64_t differs = 21;
  other.select(1, differs).fill_(first.sequences[0][differs].item<int64_t>() == 5 ? 6 : 5);
  const Generated second = turn(*net, at::cat({other, random_tokens(6, 2)}, 1), kept);
  EXPECT_EQ(second.num_computed, second.sequences.size(1) - 1 - (forgets ? 0 : differs));
  // The whole prompt is there: its last token has to be read again.
  const Generated again = turn(*net, first.sequences.narrow(1, 0, 12), kept);
  EXPECT_EQ(again.num_computed, again.sequences.size(1) - 1 - (forgets ? 0 : 11));
  // Nothing in common.
  const at::Tensor stranger = (again.sequences - 2).remainder(58) + 3;
  EXPECT_EQ(turn(*net, stranger, kept).num_computed, stranger.size(1) + 6);
}

INSTANTIATE_TEST_SUITE_P(Bodies, KeptCaches,
                         ::testing::Values(qwen3, gpt2, narrow_window, wide_window));

// A ring that has not gone round yet has all that it was given.
TEST(KeptCache, AWindowThatIsNotFullIsCutLikeAnyOther) {
  const auto net = chat_model(narrow_window());
  KeptCache kept;
  const Generated first = turn(*net, random_tokens(6, 1), kept, 5);
  const at::Tensor prompt = at::cat({first.sequences.narrow(1, 0, 8), random_tokens(30, 2)}, 1);
  const Generated second = turn(*net, prompt, kept);
  EXPECT_LE(second.num_computed, second.sequences.size(1) - 1 - 8);
}

TEST(KeptCache, OfAnotherModelOrAfterForgetBeginsAnew) {
  const auto net = chat_model(qwen3()), other = chat_model(qwen3());
  KeptCache kept;
  const at::Tensor text = turn(*net, random_tokens(9, 1), kept).sequences;
  EXPECT_EQ(turn(*other, text, kept).num_computed, text.size(1) + 6);
  kept.forget();
  EXPECT_EQ(kept.size(), 0);
  EXPECT_EQ(turn(*other, text, kept).num_computed, text.size(1) + 6);
  EXPECT_EQ(turn(*other, text, kept).num_computed, 7);
}

TEST(KeptCache, AfterACallThatThrowsIsEmpty) {
  const auto net = chat_model(qwen3());
  KeptCache kept;
  const at::Tensor text = turn(*net, random_tokens(9, 1), kept).sequences;
  EXPECT_THROW(net->generate(text, {.max_new_tokens = 4,
                                    .kept = &kept,
                                    .on_tokens = [](const at::Tensor&) -> bool {
                                      throw std::runtime_error("enough");
                                    }}),
               std::runtime_error);
  EXPECT_EQ(kept.size(), 0);
  turn(*net, text, kept);
}

TEST(KeptCache, IsOfOneTextWithoutPaddingAndOfACache) {
  const auto net = chat_model(qwen3());
  KeptCache kept;
  const auto said = [&](const Batch& prompts, GenerateOptions options) {
    options.max_new_tokens = 2;
    options.kept = &kept;
    return error_of([&] { net->generate(prompts, options); });
  };
  const at::Tensor ids = random_tokens(4, 1);
  EXPECT_THAT(said({{"input_ids", ids.repeat({2, 1})}}, {.pad_token_id = 0}),
              HasSubstr("models.generate.options: a KeptCache needs use_cache = true and one text "
                        "without padding, but got 2 texts"));
  at::Tensor mask = at::ones_like(ids);
  mask[0][0] = 0;
  EXPECT_THAT(said({{"input_ids", ids}, {"attention_mask", mask}}, {}), HasSubstr("got padding"));
  EXPECT_THAT(said({{"input_ids", ids}}, {.use_cache = false}), HasSubstr("got use_cache = false"));
}

// A template that leaves out what was thought in earlier turns, as Qwen 3's.
TEST(KeptCache, AChatWritesTheSameAnswers) {
  const test::Scratch scratch;
  std::string vocabulary = R"("?": 0, "user": 1, "assistant": 2, "end": 3, "</think>": 4)";
  for (int i = 5; i < 61; ++i)
    vocabulary += ", \"w" + std::to_string(i) + "\": " + std::to_string(i);
  test::put(scratch / "tokenizer.json",
            R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel",
                "unk_token": "?", "vocab": {)" +
                vocabulary + "}}}");
  test::put(scratch / "tokenizer_config.json", R"({"eos_token": "end"})");
  test::put(scratch / "chat_template.jinja",
            "{% for m in messages %}{{ m.role }} "
            "{% if m.role == 'assistant' %}{{ m.content.split('</think>')[-1] }}"
            "{% else %}{{ m.content }}{% endif %} end {% endfor %}"
            "{% if add_generation_prompt %}assistant {% endif %}");
  const auto tokenizer = text::Tokenizer::from_pretrained(scratch.str());
  const auto net = chat_model(qwen3());
  const auto talk = [&](KeptCache* kept, std::vector<int64_t>& computed) {
    std::vector<std::string> answers;
    std::vector<text::Message> messages;
    for (const char* asked : {"w7 w8 w9 w10 w11 w12", "w13", "w14 w15 w16", "w17 w18"}) {
      messages.push_back({"user", asked});
      const auto chat = tokenizer.apply_chat_template(messages, {.add_generation_prompt = true});
      const auto written =
          net->generate(to_prompts(tokenizer, std::span(&chat.encoding, 1)),
                        {.max_new_tokens = 9, .kept = kept, .tokenizer = &tokenizer});
      computed.push_back(written.num_computed);
      answers.push_back(written.texts.front());
      // It thinks half of it.
      std::string thought = written.texts.front();
      messages.push_back({"assistant", thought.insert(thought.find(' ', 12), " </think>")});
    }
    return answers;
  };
  KeptCache kept;
  std::vector<int64_t> with, without;
  EXPECT_EQ(talk(&kept, with), talk(nullptr, without));
  EXPECT_EQ(with.front(), without.front());
  for (size_t i = 1; i < with.size(); ++i) EXPECT_LT(with[i], without[i]) << i;
  // Of the last turn, the thoughts of the one before go, and what follows them is read again.
  EXPECT_LT(with.back(), without.back() / 2);
}

}  // namespace
}  // namespace levin::models
