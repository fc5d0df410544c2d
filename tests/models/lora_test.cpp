#include "levin/models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin {
namespace {

using models::Pretrained;
using test::error_of;
using test::put;
using test::Scratch;
using test::small;
using ::testing::HasSubstr;

Batch batch() {
  torch::manual_seed(3);
  const at::Tensor ids = at::randint(3, 61, {4, 7}, at::kLong);
  return {{"input_ids", ids}, {"labels", ids}};
}

/// Gradients of a step are all that training needs.
void train(Pretrained& net, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    net.zero_grad();
    net.forward(batch()).loss.backward();
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net.parameters()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.5);
    }
  }
}

std::map<std::string, at::Tensor> copies(const Pretrained& net) {
  std::map<std::string, at::Tensor> values;
  for (const auto& parameter : net.named_parameters())
    values.emplace(parameter.key(), parameter.value().detach().clone());
  return values;
}

TEST(Lora, ChangesNothingAtFirstAndTrainsTheAdapterAlone) {
  for (const bool dora : {false, true}) {
    const auto net = small(test::small_qwen3(), "text-generation");
    const at::Tensor before = net->forward(batch()).logits;
    lora::add(net, {.r = 4, .target_modules = {"all-linear"}, .use_dora = dora});
    EXPECT_TRUE(at::allclose(net->forward(batch()).logits, before, 1e-5, 1e-6));
    const auto values = copies(*net);
    const double loss = net->forward(batch()).loss.item<double>();
    train(*net, 5);
    EXPECT_LT(net->forward(batch()).loss.item<double>(), loss);
    for (const auto& parameter : net->named_parameters()) {
      const bool is_own = parameter.key().find(".lora_") != std::string::npos;
      EXPECT_EQ(parameter.value().requires_grad(), is_own) << parameter.key();
      EXPECT_EQ(at::equal(parameter.value(), values.at(parameter.key())), !is_own)
          << parameter.key();
    }
    const lora::WithoutAdapter scope(*net);
    EXPECT_TRUE(at::equal(net->forward(batch()).logits, before));
  }
}

TEST(Lora, AClassificationHeadIsTrainedWholeAndSavedWithTheAdapter) {
  const Scratch scratch;
  const auto net = small(test::small_bert(), "text-classification", {.num_labels = 3});
  net->save_pretrained(scratch / "model");
  const auto made = models::from_pretrained(scratch / "model");
  lora::add(made, {.target_modules = {"query"}});
  const Batch given{{"input_ids", batch()["input_ids"]}, {"labels", at::tensor({0, 1, 2, 1})}};
  made->forward(given).loss.backward();
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : made->parameters()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.5);
    }
  }
  made->save_pretrained(scratch / "adapter");
  const State file = load_weights(scratch / "adapter" / "adapter_model.safetensors");
  EXPECT_TRUE(file.contains("base_model.model.classifier.weight"));
  EXPECT_FALSE(file.contains("base_model.model.bert.pooler.dense.weight"));
  const auto again = models::from_pretrained(scratch / "model");
  lora::load(*again, scratch / "adapter");
  EXPECT_TRUE(at::equal(again->forward(given).logits, made->forward(given).logits));
}

TEST(Lora, AnAdapterOfAnotherTypeIsNamed) {
  const Scratch scratch;
  const auto net = small(test::small_bert(), "text-classification");
  net->save_pretrained(scratch / "model");
  const auto made = models::from_pretrained(scratch / "model");
  lora::add(made, {.target_modules = {"query"}});
  made->save_pretrained(scratch / "adapter");
  const std::filesystem::path file = scratch / "adapter" / "adapter_model.safetensors";
  const State whole = load_weights(file);
  State halves;
  for (const auto& [name, value] : whole.values())
    halves.set(name, whole.tensor(name).to(at::kHalf));
  save_weights(file, halves);
  std::string heard;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { heard.append(text); });
  lora::load(*models::from_pretrained(scratch / "model"), scratch / "adapter");
  log::set_sink(before);
  EXPECT_THAT(heard, ::testing::HasSubstr("tensors are cast from Half to the module's Float ("));
}

TEST(Lora, DropoutIsOfTrainingAlone) {
  const auto net = small(test::small_qwen3(), "text-generation");
  lora::add(net, {.lora_dropout = 0.5, .target_modules = {"all-linear"}});
  train(*net, 2);
  const Batch given = batch();  // which seeds the generator
  const auto logits = [&] { return net->forward(given).logits; };
  EXPECT_FALSE(at::equal(logits(), logits()));
  net->eval();
  EXPECT_TRUE(at::equal(logits(), logits()));
}

TEST(Lora, HalfPrecisionModelsHaveAdaptersOfFloat32) {
  const auto net = small(test::small_qwen3(), "text-generation", {.dtype = "bfloat16"});
  lora::add(net, {.target_modules = {"all-linear"}});
  for (const auto& parameter : net->named_parameters()) {
    const bool is_own = parameter.key().find(".lora_") != std::string::npos;
    EXPECT_EQ(parameter.value().scalar_type(), is_own ? at::kFloat : at::kBFloat16);
  }
  EXPECT_EQ(net->forward(batch()).logits.scalar_type(), at::kBFloat16);
  train(*net, 1);
}

TEST(Lora, WhatCannotBeIsNamed) {
  const Scratch scratch;
  const auto net = small(test::small_qwen3(), "text-generation");
  const auto error = [&](const LoraOptions& options) {
    return error_of([&] { lora::add(net, options); });
  };
  EXPECT_THAT(error({.target_modules = {"q_prj"}}), HasSubstr("models.lora.target"));
  EXPECT_THAT(error({.target_modules = {"q_prj"}}), HasSubstr("nearest is q_proj"));
  EXPECT_THAT(error({.target_modules = {"q_proj"}, .alpha_pattern = {{"k_.*", 4.0}}}),
              HasSubstr("models.lora.options: alpha_pattern has the key 'k_.*'"));
  EXPECT_THAT(error({.modules_to_save = {"lm_haed"}}),
              HasSubstr("models.lora.target: modules_to_save has 'lm_haed'"));
  EXPECT_THAT(error({.modules_to_save = {"lm_haed"}}), HasSubstr("nearest is lm_head"));
  EXPECT_THAT(
      error({.target_pattern = "(q_proj"}),
      HasSubstr("models.lora.options: target_modules has the regular expression '(q_proj'"));
  EXPECT_THAT(error({.target_modules = {"q_proj"}, .target_pattern = "q_proj"}),
              HasSubstr("models.lora.options: got target_pattern together with"));
  EXPECT_THAT(error({.target_modules = {"embed_tokens", "q_proj"}}),
              HasSubstr("models.lora.target: target_modules names model.embed_tokens"));
  EXPECT_THAT(error({.target_modules = {"q_proj"}, .layers_to_transform = {7}}),
              HasSubstr("models.lora.target: no linear layer is in the layers 7"));
  EXPECT_THAT(error({.target_modules = {"q_proj"}, .layers_pattern = {"layers"}}),
              HasSubstr("models.lora.options: got layers_pattern without layers_to_transform"));
  EXPECT_THAT(error({.layers_to_transform = {0}, .layers_pattern = {"l.*"}}),
              HasSubstr("models.lora.options: got layers_pattern 'l.*'"));
  EXPECT_THAT(error({.r = 0}), HasSubstr("models.lora.options: got r = 0"));
  EXPECT_THAT(error_of([&] { lora::save(*net, scratch / "adapter"); }),
              HasSubstr("models.lora.none"));
  EXPECT_THAT(error_of([&] { lora::load(*net, scratch / "adapter"); }),
              HasSubstr("models.missing"));
  lora::add(net);
  EXPECT_THAT(error({}), HasSubstr("models.lora.twice"));
  lora::save(*net, scratch / "adapter");
  std::string wider = test::small_qwen3();
  wider.replace(wider.find("\"hidden_size\": 24"), 17, "\"hidden_size\": 32");
  EXPECT_THAT(error_of([&] { lora::load(*small(wider, "text-generation"), scratch / "adapter"); }),
              HasSubstr("models.lora.weights"));
  std::string config = test::get(scratch / "adapter" / "adapter_config.json");
  put(scratch / "adapter" / "adapter_config.json", config.replace(config.find("LORA"), 4, "IA3"));
  EXPECT_THAT(error_of([&] {
                lora::load(*small(test::small_qwen3(), "text-generation"), scratch / "adapter");
              }),
              HasSubstr("has peft_type = 'IA3'"));
}

std::vector<std::string> adapted(const LoraOptions& options) {
  const auto net = small(test::small_qwen3(), "text-generation");
  lora::add(net, options);
  std::vector<std::string> names;
  for (const auto& parameter : net->named_parameters()) {
    const std::string end = ".lora_A.weight";
    if (parameter.key().ends_with(end))
      names.push_back(parameter.key().substr(0, parameter.key().size() - end.size()));
  }
  return names;
}

// check_target_module_exists of PEFT 0.21.2.
TEST(Lora, ModulesAreChosenByPeftsRules) {
  using Names = std::vector<std::string>;
  const std::string first = "model.layers.0.self_attn.", second = "model.layers.1.self_attn.";
  EXPECT_EQ(adapted({.target_pattern = R"(.*\.1\..*[qv]_proj)"}),
            (Names{second + "q_proj", second + "v_proj"}));
  EXPECT_EQ(adapted({.target_modules = {"self_attn.q_proj"}}),
            (Names{first + "q_proj", second + "q_proj"}));
  EXPECT_EQ(adapted({.target_modules = {"q_proj"}, .layers_to_transform = {1}}),
            (Names{second + "q_proj"}));
  EXPECT_EQ(adapted({.target_modules = {"q_proj"},
                     .layers_to_transform = {0, 5},
                     .layers_pattern = {"h", "layers"}}),
            (Names{first + "q_proj"}));
  // A whole name is one whatever the layers.
  EXPECT_EQ(adapted({.target_modules = {second + "q_proj", "k_proj"}, .layers_to_transform = {0}}),
            (Names{first + "k_proj", second + "q_proj"}));
  EXPECT_EQ(
      adapted({.target_modules = {"q_proj", "k_proj"}, .exclude_modules = {"0.self_attn.q_proj"}}),
      (Names{first + "k_proj", second + "q_proj", second + "k_proj"}));
  EXPECT_EQ(adapted({.target_modules = {"q_proj", "k_proj"}, .exclude_pattern = R"(.*\.0\..*)"}),
            (Names{second + "q_proj", second + "k_proj"}));
}

TEST(Lora, TheFirstPatternThatANameEndsWithSaysItsRank) {
  const auto net = small(test::small_qwen3(), "text-generation");
  lora::add(net, {.target_modules = {"q_proj", "k_proj"},
                  .rank_pattern = {{"layers.1.*", 3}, {"[qk]_proj", 5}, {"q_proj", 7}}});
  const auto parameters = net->named_parameters();
  const auto rank = [&](const char* name) {
    return parameters[std::string("model.layers.") + name + ".lora_A.weight"].size(0);
  };
  EXPECT_EQ(rank("0.self_attn.q_proj"), 5);
  EXPECT_EQ(rank("1.self_attn.k_proj"), 3);
}

// As PEFT by QUESTION_ANS; a name without its dot is an ending too.
TEST(Lora, HeadsOfAnswersAndModulesByTheirEndingAreTrainedAndSaved) {
  const Scratch scratch;
  small(test::small_bert(), "question-answering")->save_pretrained(scratch / "model");
  const auto net = models::from_pretrained(scratch / "model");
  lora::add(net, {.target_modules = {"query"}, .modules_to_save = {"r.0.output.dense"}});
  const auto parameters = net->named_parameters();
  for (const char* name :
       {"qa_outputs.weight", "qa_outputs.bias", "bert.encoder.layer.0.output.dense.weight"})
    EXPECT_TRUE(parameters[name].requires_grad()) << name;
  EXPECT_FALSE(parameters["bert.encoder.layer.1.output.dense.weight"].requires_grad());
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters())
      if (parameter.requires_grad()) parameter.add_(0.25);
  }
  net->save_pretrained(scratch / "adapter");
  const State file = load_weights(scratch / "adapter" / "adapter_model.safetensors");
  EXPECT_TRUE(file.contains("base_model.model.qa_outputs.weight"));
  EXPECT_THAT(test::get(scratch / "adapter" / "adapter_config.json"), HasSubstr("QUESTION_ANS"));
  const auto again = models::from_pretrained(scratch / "model");
  lora::load(*again, scratch / "adapter");
  const Batch given{{"input_ids", batch()["input_ids"]}};
  EXPECT_TRUE(at::equal(again->forward(given).logits, net->forward(given).logits));
}

TEST(Lora, WithoutItsAdapterAModelHasTheValuesThatItsModulesHad) {
  const auto net = small(test::small_qwen3(), "text-generation");
  const at::Tensor before = net->forward(batch()).logits;
  lora::add(net, {.target_modules = {"q_proj"}, .modules_to_save = {"lm_head", "embed_tokens"}});
  train(*net, 2);
  const at::Tensor after = net->forward(batch()).logits;
  EXPECT_FALSE(at::allclose(after, before));
  {
    const lora::WithoutAdapter scope(*net);
    EXPECT_TRUE(at::equal(net->forward(batch()).logits, before));
  }
  EXPECT_TRUE(at::equal(net->forward(batch()).logits, after));
  train(*net, 1);  // parameters are those that the optimizer has
  EXPECT_FALSE(at::equal(net->forward(batch()).logits, after));
}

TEST(Lora, AModuleThatSharesItsMatrixIsNotTrainedAlone) {
  std::string config = test::small_qwen3();
  config.insert(1, "\"tie_word_embeddings\": true, ");
  const auto error = [&](const LoraOptions& options) {
    return error_of([&] { lora::add(small(config, "text-generation"), options); });
  };
  EXPECT_THAT(error({.modules_to_save = {"lm_head"}}),
              HasSubstr("models.lora.options: modules_to_save has 'lm_head'"));
  EXPECT_THAT(error({.modules_to_save = {"head"}}),
              HasSubstr("models.lora.options: modules_to_save has 'head'"));
  EXPECT_THAT(
      error({.modules_to_save = {"embed_tokens"}}),
      HasSubstr("modules_to_save trains model.embed_tokens.weight, but it is tied to the head"));
  EXPECT_EQ(error({.modules_to_save = {"embed_tokens"}, .ensure_weight_tying = true}), "no error");
  EXPECT_THAT(error_of([&] {
                lora::add(small(test::small_bert(), "fill-mask"), {.modules_to_save = {"cls"}});
              }),
              HasSubstr("modules_to_save has 'cls'"));
}

}  // namespace
}  // namespace levin
