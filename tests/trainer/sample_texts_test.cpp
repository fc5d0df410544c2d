// sample_texts writes while a model trains, and training does not notice: dropout, replay, ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/models/pretrained.h"
#include "levin/module/parameters.h"
#include "levin/text/tokenizer.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace sample_texts_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_id;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<levin::text::Tokenizer> tokenizer() {
  return std::make_shared<levin::text::Tokenizer>(levin::text::Tokenizer::from_json(
      R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "?",
          "vocab": {"?": 0, "so": 1, "it": 2, "goes": 3, "and": 4, "on": 5, "again": 6}}})"));
}

struct Speaker : levin::Module {
  std::shared_ptr<levin::models::Pretrained> net;

  Speaker()
      : net(register_module("net", levin::models::from_config(
                                       levin::models::Config::from_json(
                                           R"({"model_type": "gpt2", "vocab_size": 7, "n_embd": 16,
                                     "n_layer": 2, "n_head": 2, "n_positions": 24, "resid_pdrop": 0.2})"),
                                       {.task = "text-generation"}))) {}
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override { return net->forward(batch).loss; }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-2});
  }
};

levin::SampleTextsOptions drawn() {
  return {.prompts = {"so it", "and"},
          .tokenizer = tokenizer(),
          .every_n_steps = 2,
          .generate = {.max_new_tokens = 6, .do_sample = true},
          .print = false};
}

std::shared_ptr<Speaker> fit(levin::TrainerOptions options, bool saves = false) {
  levin::seed_everything(3);
  const auto ids = at::randint(1, 7, {40, 8}, at::make_generator<at::CPUGeneratorImpl>(5),
                               at::TensorOptions(at::kLong));
  const auto data =
      levin::test::off_disk(levin::data::tensors({{"input_ids", ids}, {"labels", ids.clone()}}));
  const auto module = std::make_shared<Speaker>();
  options.max_epochs = 2;
  options.enable_checkpointing = saves;
  levin::Trainer(options).fit(module, levin::DataLoader(data, {.batch_size = 8, .shuffle = true}));
  return module;
}

TEST(SampleTexts, WeightsAreTheSameWithAndWithoutIt) {
  for (const char* compile : {"no", "replay"}) {
    SCOPED_TRACE(compile);
    auto options = quiet(".");
    options.engine.compile = compile;
    const auto without = fit(options);
    std::vector<int64_t> steps;
    auto with = drawn();
    with.on_sample = [&](int64_t step, const std::string&, const std::string&) {
      steps.push_back(step);
    };
    options.callbacks = {levin::sample_texts(with)};
    const auto sampled = fit(options);
    expect_same_weights(*without, *sampled);
    EXPECT_THAT(steps, ElementsAre(2, 2, 4, 4, 5, 5, 6, 6, 8, 8, 10, 10));
    EXPECT_TRUE(sampled->net->is_training());
  }
}

// Each rank has a part of the model under fsdp.
TEST(SampleTexts, OnRanksTooAndTheyWriteTheSame) {
  for (const char* strategy : {"ddp", "fsdp"}) {
    const auto said = levin::test::run_world(2, [&](int64_t rank, const fs::path& folder) {
      auto options = quiet((folder / std::to_string(rank)).string());
      options.strategy = strategy;
      options.devices = 2;
      const auto without = levin::full(*fit(options));
      auto with = drawn();
      std::string texts;
      with.on_sample = [&](int64_t, const std::string&, const std::string& text) {
        texts += text + "\n";
      };
      options.callbacks = {levin::sample_texts(with)};
      const auto sampled = levin::full(*fit(options));
      for (const auto& [name, value] : without.values()) {
        if (!at::equal(without.tensor(name), sampled.tensor(name))) return name + " differs";
      }
      return rank == 0 ? std::string(texts.size() > 20 ? "" : "no texts")
                       : std::string(texts.empty() ? "" : "a second rank wrote");
    });
    EXPECT_THAT(said, Each("")) << strategy;
  }
}

TEST(SampleTexts, AreAddedToAFileOfTheLogs) {
  const Scratch root;
  const auto recorder = std::make_shared<Recorder>();
  recorder->folder = (root / "logs").string();
  auto options = quiet(root.str());
  options.logger = recorder;
  auto settings = drawn();
  settings.every_n_steps = 0;
  settings.generate = {.max_new_tokens = 3, .eos_token_id = {0}};
  options.callbacks = {levin::sample_texts(settings)};
  fit(options);
  const std::string text = levin::test::get(root / "logs" / "samples.txt");
  EXPECT_THAT(text, HasSubstr("== step 5: so it\n"));
  EXPECT_THAT(text, HasSubstr("== step 10: and\n"));
}

TEST(SampleTexts, OfAChatAreAnswersByItsTemplate) {
  const Scratch root;
  levin::test::put(
      root / "tokenizer.json",
      R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "?",
                       "vocab": {"?": 0, "so": 1, "it": 2, "goes": 3, "and": 4, "on": 5, "again": 6}}})");
  levin::test::put(root / "tokenizer_config.json", R"({"pad_token": "?", "chat_template":
      "{% for m in messages %}again {{ m.content }} {% endfor %}on "})");
  const auto chats =
      std::make_shared<levin::text::Tokenizer>(levin::text::Tokenizer::from_pretrained(root.str()));
  auto asked = drawn(), written = drawn();
  asked.tokenizer = written.tokenizer = chats;
  asked.prompts = {"so it", "and"};
  asked.chat = true;
  written.prompts = {"again so it on", "again and on"};
  std::vector<std::string> answers[2];
  for (auto* settings : {&asked, &written}) {
    auto& all = answers[settings == &asked ? 0 : 1];
    settings->on_sample = [&all](int64_t, const std::string&, const std::string& text) {
      all.push_back(text);
    };
    auto options = quiet(root.str());
    options.callbacks = {levin::sample_texts(*settings)};
    fit(options);
  }
  EXPECT_FALSE(answers[0].empty());
  EXPECT_EQ(answers[0], answers[1]);
}

TEST(SampleTexts, WithoutWhatItNeedsIsAnError) {
  const std::string id = "trainer.sample_texts";
  EXPECT_EQ(error_id([] { levin::sample_texts({.tokenizer = tokenizer()}); }), id);
  EXPECT_EQ(error_id([] { levin::sample_texts({.prompts = {"so"}}); }), id);
  EXPECT_EQ(error_id([] {
              levin::sample_texts({.prompts = {"so"}, .chat = true, .tokenizer = tokenizer()});
            }),
            id);
  EXPECT_EQ(
      error_id([] {
        levin::sample_texts({.prompts = {"so"}, .tokenizer = tokenizer(), .every_n_steps = -1});
      }),
      id);
  auto options = quiet(".");
  options.max_epochs = 1;
  options.enable_checkpointing = false;
  options.callbacks = {levin::sample_texts(drawn())};
  EXPECT_EQ(error_id([&] {
              levin::Trainer(options).fit(std::make_shared<Net>(),
                                          levin::DataLoader(dataset(8), {.batch_size = 8}));
            }),
            id);
}

TEST(SampleTexts, FindsWhatGenerateWouldBeforeTheFirstBatch) {
  const Scratch root;
  const auto error_with = [&](const std::function<void(levin::SampleTextsOptions&)>& change) {
    levin::SampleTextsOptions options = drawn();
    change(options);
    auto trainer = quiet(root.str());
    int64_t sampled = 0;
    options.on_sample = [&](int64_t, const std::string&, const std::string&) { ++sampled; };
    const std::string id = error_id([&] {
      trainer.callbacks = {levin::sample_texts(options)};
      fit(trainer);
    });
    EXPECT_EQ(sampled, 0);
    return id;
  };
  EXPECT_EQ(error_with([](auto& o) { o.generate.temperature = -1; }), "models.generate.options");
  EXPECT_EQ(error_with([](auto& o) { o.generate.max_new_tokens = 40; }), "models.length");
  EXPECT_EQ(error_with([](auto& o) { o.every_n_steps = o.every_n_epochs = 0; }),
            "trainer.sample_texts");
  EXPECT_EQ(error_with([](auto& o) { o.file = "../samples.txt"; }), "trainer.sample_texts");
  EXPECT_EQ(error_with([](auto& o) { o.file = "/samples.txt"; }), "trainer.sample_texts");
}

TEST(SampleTexts, OfARunThatGoesOnAreWrittenOnce) {
  const auto file_after = [](bool is_disturbed) {
    const Scratch root;
    auto options = quiet(root.str());
    options.logger = true;
    options.log_every_n_steps = 1;
    const auto run = [&](int64_t max_steps, const std::string& from) {
      options.max_steps = max_steps;
      options.ckpt_path = from;
      options.callbacks = {levin::sample_texts(drawn()),
                           levin::model_checkpoint(
                               {.save_last = false, .save_top_k = -1, .every_n_train_steps = 3})};
      fit(options, /*saves=*/true);
    };
    if (is_disturbed) run(5, "");  // has sampled at 4, and saved at 3
    run(8, is_disturbed ? "last" : "");
    return levin::test::get(root / "levin_logs/version_0/samples.txt");
  };
  const std::string whole = file_after(false);
  EXPECT_THAT(whole, HasSubstr("== step 8: so it"));
  EXPECT_EQ(file_after(true), whole);
}

}  // namespace
}  // namespace sample_texts_test
