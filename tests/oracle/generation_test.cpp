// What Pretrained::generate writes against transformers' generate, token by token: prompts of several lengths in one batch
// that is padded on the left, with a cache and without, windows shorter than the text; and what it draws under a seed.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/generate/options.h"
#include "levin/models/generate/scores.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tests/oracle/python.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

GenerateOptions options_of(const json& given) {
  GenerateOptions options;
  const auto take = [&](const char* key, auto& field) {
    if (given.contains(key)) given[key].get_to(field.emplace());
  };
  take("max_length", options.max_length);
  take("max_new_tokens", options.max_new_tokens);
  take("min_length", options.min_length);
  take("min_new_tokens", options.min_new_tokens);
  take("do_sample", options.do_sample);
  take("repetition_penalty", options.repetition_penalty);
  take("temperature", options.temperature);
  take("top_k", options.top_k);
  take("top_p", options.top_p);
  take("min_p", options.min_p);
  take("num_return_sequences", options.num_return_sequences);
  take("pad_token_id", options.pad_token_id);
  take("seed", options.seed);
  if (given.contains("eos_token_id")) given["eos_token_id"].get_to(options.eos_token_id);
  if (given.contains("stop_strings")) {
    const json& strings = given["stop_strings"];
    options.stop_strings = strings.is_array() ? strings.get<std::vector<std::string>>()
                                              : std::vector{strings.get<std::string>()};
  }
  return options;
}

/// Numbers of the scores that are not those of transformers: others may be chosen, or by other odds.
int64_t differences(const std::vector<at::Tensor>& scores, const at::Tensor& wanted) {
  const at::Tensor ours = at::stack(scores);
  if (ours.sizes() != wanted.sizes()) return -1;
  const at::Tensor same_choice = ours.isinf() == wanted.isinf();
  const at::Tensor close = (ours - wanted).abs() <= 1e-4 * wanted.abs().clamp_min(1.0);
  return same_choice.logical_and(close.logical_or(ours.isinf()))
      .logical_not()
      .sum()
      .item<int64_t>();
}

/// Steps in which what transformers chose by is not, to the bit, what levin makes of the same logits.
int64_t steps_apart(const Pretrained& net, const GenerateOptions& options, const State& expected,
                    const std::string& name) {
  const at::Tensor ids = expected.tensor(name + ".sequences");
  const at::Tensor logits = expected.tensor(name + ".logits");
  const at::Tensor wanted = expected.tensor(name + ".scores");
  const at::Tensor mask = expected.tensor("attention_mask");
  const int64_t prompt = mask.size(1);
  const auto settings = GenerateSettings::of(options, net.generation_config(), net.config(), prompt,
                                             /*longest=*/0);
  at::Tensor seen;
  const Scores scores(settings, mask.repeat_interleave(settings.num_return_sequences, 0) == 0,
                      at::make_generator<at::CPUGeneratorImpl>(options.seed.value_or(0)),
                      [&](const at::Tensor& each) { seen = each; });
  int64_t apart = 0;
  for (int64_t step = 0; step < logits.size(0); ++step) {
    scores.choose(logits[step], ids.narrow(1, 0, prompt + step));
    apart += at::equal(seen, wanted[step]) ? 0 : 1;
  }
  return apart;
}

class GenerationFolders : public test::PythonTest {};

TEST_F(GenerationFolders, AreContinuedAsByTransformersTokenByToken) {
  std::string output;
  const fs::path root = file("folders");
  fs::create_directories(root);
  ASSERT_EQ(run("generation.py", "'" + root.string() + "'", &output), 0) << output;
  int64_t prompts = 0, drawn = 0, texts = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    SCOPED_TRACE(entry.path().filename());
    const State expected = load_weights(entry.path() / "expected.safetensors");
    const json cases = json::parse(test::bytes_of(entry.path() / "cases.json"));
    const auto net = from_pretrained(entry.path());
    std::optional<text::Tokenizer> tokenizer;
    if (fs::exists(entry.path() / "tokenizer.json"))
      tokenizer = text::Tokenizer::from_pretrained(entry.path());
    const Batch batch{{"input_ids", expected.tensor("input_ids")},
                      {"attention_mask", expected.tensor("attention_mask")}};
    for (const auto& [name, given] : cases.items()) {
      for (const bool use_cache : {true, false}) {
        SCOPED_TRACE(name + (use_cache ? "" : " without a cache"));
        GenerateOptions options = options_of(given);
        options.use_cache = use_cache;
        std::vector<at::Tensor> scores;
        options.on_scores = [&](const at::Tensor& each) { scores.push_back(each); };
        std::map<int64_t, std::string> streamed;
        if (tokenizer) {
          options.tokenizer = &*tokenizer;
          options.on_text = [&](int64_t row, std::string_view piece) { streamed[row] += piece; };
        }
        try {
          const Generated written = net->generate(batch, options);
          const at::Tensor wanted = expected.tensor(name + ".sequences");
          EXPECT_TRUE(at::equal(written.sequences, wanted)) << written.sequences << "\nwanted\n"
                                                            << wanted;
          prompts += use_cache ? batch.size() : 0;
          if (expected.contains(name + ".scores")) {
            EXPECT_EQ(differences(scores, expected.tensor(name + ".scores")), 0);
            EXPECT_EQ(steps_apart(*net, options_of(given), expected, name), 0);
            drawn += wanted.size(0);
          }
          if (!tokenizer) continue;
          EXPECT_EQ(written.texts, given["texts"].get<std::vector<std::string>>());
          for (size_t row = 0; row < written.texts.size(); ++row, ++texts)
            EXPECT_EQ(streamed[static_cast<int64_t>(row)], written.texts[row]);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      }
    }
  }
  EXPECT_GE(prompts, 200);
  EXPECT_GE(drawn, 200);
  EXPECT_GE(texts, 40);
}

}  // namespace
}  // namespace levin::models
