#include "levin/models/fine_tune/fine_tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "levin/models/fine_tune/objective.h"
#include "levin/models/lora.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;
using ::testing::HasSubstr;

at::Tensor drawn_ids(at::IntArrayRef sizes) {
  return at::randint(3, 61, sizes, at::make_generator<at::CPUGeneratorImpl>(uint64_t{5}),
                     at::kLong);
}

/// A folder of a small model with so many labels.
void write_bert(const fs::path& folder, uint64_t seed) {
  torch::manual_seed(seed);
  test::small(test::small_bert(), "text-classification", {.num_labels = 3})
      ->save_pretrained(folder);
}

DataLoader texts(int64_t batch_size = 4) {
  const at::Tensor ids = drawn_ids({24, 7});
  return {data::tensors({{"input_ids", ids}, {"labels", ids.select(1, 0).remainder(3)}}),
          {.batch_size = batch_size}};
}

TrainerOptions quiet(const fs::path& root, int64_t max_steps) {
  return {.accelerator = "cpu",
          .logger = false,
          .max_epochs = -1,
          .max_steps = max_steps,
          .num_sanity_val_steps = 0,
          .enable_progress_bar = false,
          .enable_model_summary = false,
          .default_root_dir = root.string(),
          .exit_on_signal = false};
}

std::shared_ptr<Pretrained> adapted(const fs::path& folder) {
  torch::manual_seed(9);
  auto net = from_pretrained(folder);
  lora::add(net, {.r = 32, .target_modules = {"query", "value"}});
  return net;
}

std::map<std::string, at::Tensor> values_of(const Pretrained& net) {
  std::map<std::string, at::Tensor> values;
  for (const auto& parameter : net.named_parameters())
    values.emplace(parameter.key(), parameter.value().detach().clone());
  return values;
}

TEST(FineTune, BiasesAndNormsDoNotDecay) {
  for (const char* name :
       {"net.a.bias", "bert.encoder.layer.0.output.LayerNorm.weight", "model.norm.weight",
        "model.layers.0.input_layernorm.weight", "layers.1.self_attn.q_norm.weight",
        "layers.0.sa_layer_norm.weight", "norm.weight"})
    EXPECT_FALSE(decays(name)) << name;
  for (const char* name : {"net.q_proj.weight", "a.lora_A.weight", "a.normal.weight"})
    EXPECT_TRUE(decays(name)) << name;
}

/// Gradients of 0 leave what decay alone does.
TEST(FineTune, DecaysTheParametersThatTransformersDecays) {
  const auto module = fine_tune(test::small(test::small_gpt2(), "text-generation"),
                                {.lr = 1.0, .weight_decay = 0.5});
  for (const auto& parameter : module->parameters()) {
    const at::NoGradGuard no_grad;
    parameter.fill_(1);
    parameter.mutable_grad() = at::zeros_like(parameter);
  }
  const auto optimizer =
      optim::build_optimizer(module->configure_optimizers(), named_parameters(*module));
  optimizer->step();
  for (const auto& [name, value] : named_parameters(*module)) {
    const bool is_kept = name.ends_with(".bias") || name.find(".ln_") != std::string::npos;
    EXPECT_EQ(value.flatten()[0].item<float>(), is_kept ? 1.0f : 0.5f) << name;
  }
}

TEST(FineTune, TrainsAnAdapterAndLogsTheMetricsOfItsTask) {
  const Scratch scratch;
  write_bert(scratch / "base", 1);
  const auto net = adapted(scratch / "base");
  const auto before = values_of(*net);
  Trainer trainer(quiet(scratch.path(), 30));
  const auto module = fine_tune(net, {.lr = 2e-2});
  const Metrics first = trainer.validate(module, texts());
  trainer.fit(module, texts());
  const Metrics last = trainer.validate(module, texts());
  EXPECT_LT(last.at("val_loss"), first.at("val_loss"));
  EXPECT_TRUE(last.contains("val_accuracy") && last.contains("val_f1"));
  for (const auto& parameter : net->named_parameters()) {
    EXPECT_EQ(at::equal(parameter.value(), before.at(parameter.key())),
              !parameter.value().requires_grad())
        << parameter.key();
  }
}

/// Killed after step 5 and resumed: bit for bit what 10 steps give. The file holds what trains.
TEST(FineTune, ACheckpointHoldsWhatTrainsAndGoesOnBitForBit) {
  const Scratch scratch;
  write_bert(scratch / "base", 1);
  const auto whole = adapted(scratch / "base");
  Trainer(quiet(scratch / "whole", 10))
      .fit(fine_tune(whole, {.lr = 1e-2, .schedule = "constant"}), texts());
  {
    Trainer trainer(quiet(scratch / "cut", 5));
    trainer.fit(fine_tune(adapted(scratch / "base"), {.lr = 1e-2, .schedule = "constant"}),
                texts());
    trainer.save_checkpoint(scratch / "at_5");
  }
  const State weights = load_weights(scratch / "at_5");
  for (const auto& [name, value] : weights.values()) {
    const bool trains =
        name.find(".lora_") != std::string::npos || name.starts_with("net.classifier");
    EXPECT_TRUE(trains) << name;
  }
  whole->save_pretrained(scratch / "adapter");
  uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(scratch / "at_5")) {
    if (file.path().extension() == ".safetensors") bytes += file.file_size();
  }
  EXPECT_LE(bytes, 4 * fs::file_size(scratch / "adapter" / "adapter_model.safetensors"));
  const auto resumed = adapted(scratch / "base");
  auto options = quiet(scratch / "resumed", 10);
  options.ckpt_path = (scratch / "at_5").string();
  Trainer(options).fit(fine_tune(resumed, {.lr = 1e-2, .schedule = "constant"}), texts());
  const auto wanted = values_of(*whole), found = values_of(*resumed);
  for (const auto& [name, value] : wanted) EXPECT_TRUE(at::equal(value, found.at(name))) << name;
}

TEST(FineTune, AnotherBaseIsRefusedOnResumeAndInValidation) {
  const Scratch scratch;
  write_bert(scratch / "base", 1);
  write_bert(scratch / "other", 2);
  Trainer trainer(quiet(scratch / "cut", 2));
  trainer.fit(fine_tune(adapted(scratch / "base")), texts());
  trainer.save_checkpoint(scratch / "at_2");
  auto options = quiet(scratch / "resumed", 4);
  options.ckpt_path = (scratch / "at_2").string();
  EXPECT_THAT(
      error_of([&] { Trainer(options).fit(fine_tune(adapted(scratch / "other")), texts()); }),
      HasSubstr("module.base: the checkpoint was trained on the model in"));
  EXPECT_THAT(error_of([&] {
                Trainer(quiet(scratch / "v", 1))
                    .validate(fine_tune(adapted(scratch / "other")), texts(),
                              {.ckpt_path = (scratch / "at_2").string()});
              }),
              HasSubstr("module.base"));
  Trainer(quiet(scratch / "v", 1))
      .validate(fine_tune(adapted(scratch / "base")), texts(),
                {.ckpt_path = (scratch / "at_2").string()});
}

TEST(FineTune, PackedTextsHaveTheLossOfThoseAlone) {
  torch::manual_seed(1);
  const auto net = test::small(test::small_bert(), "text-classification", {.num_labels = 3});
  const at::Tensor ids = drawn_ids({2, 4}), labels = at::tensor({2, 0}, at::kLong);
  const double wanted = net->forward({{"input_ids", ids}, {"labels", labels}}).loss.item<double>();
  const at::Tensor packed = at::full({1, 10}, 0, at::kLong),
                   document = at::full({1, 10}, -1, at::kLong),
                   placed = at::full({1, 10}, -100, at::kLong);
  for (int64_t text = 0; text < 2; ++text) {
    packed[0].narrow(0, 4 * text, 4).copy_(ids[text]);
    document[0].narrow(0, 4 * text, 4).fill_(text);
    placed[0][4 * text].copy_(labels[text]);
  }
  const Output found =
      net->forward({{"input_ids", packed}, {"document", document}, {"labels", placed}});
  EXPECT_NEAR(found.loss.item<double>(), wanted, 1e-5);
  EXPECT_EQ(found.count.item<int64_t>(), 2);
  const auto decoder = test::small(test::small_qwen3(), "text-classification");
  EXPECT_THAT(
      error_of([&] {
        decoder->forward({{"input_ids", packed}, {"document", document}, {"labels", placed}});
      }),
      HasSubstr("models.packing"));
}

TEST(FineTune, ALabelOutsideOfTheHeadIsNamed) {
  const auto net = test::small(test::small_bert(), "text-classification", {.num_labels = 3});
  const Batch batch{{"input_ids", drawn_ids({2, 4})}, {"labels", at::tensor({1, 3}, at::kLong)}};
  EXPECT_THAT(error_of([&] { net->forward(batch); }),
              HasSubstr("models.labels: got the label 3, but the head has scores for 0 to 2"));
}

TEST(FineTune, DpoHoldsTheModelAgainstItselfWithoutItsAdapter) {
  const Scratch scratch;
  torch::manual_seed(1);
  const auto net = test::small(test::small_qwen3(), "text-generation");
  EXPECT_THAT(error_of([&] { fine_tune(net, {.objective = "dpo"}); }),
              HasSubstr("models.dpo.reference"));
  lora::add(net, {.r = 4, .target_modules = {"q_proj"}});
  const at::Tensor ids = drawn_ids({8, 2, 6});
  at::Tensor labels = ids.clone();
  labels.narrow(2, 0, 2).fill_(-100);
  const DataLoader pairs(data::tensors({{"input_ids", ids}, {"labels", labels}}),
                         {.batch_size = 4});
  const auto module = fine_tune(net, {.objective = "dpo", .lr = 1e-2, .beta = 0.5});
  Trainer trainer(quiet(scratch.path(), 10));
  const Metrics first = trainer.validate(module, pairs);
  EXPECT_NEAR(first.at("val_loss"), std::log(2.0), 1e-6);
  EXPECT_NEAR(first.at("val_rewards/margins"), 0, 1e-6);
  trainer.fit(module, pairs);
  const Metrics last = trainer.validate(module, pairs);
  EXPECT_LT(last.at("val_loss"), first.at("val_loss"));
  EXPECT_GT(last.at("val_rewards/margins"), 0);
}

/// Dropout is off in both, with blocks that are computed once more in backward too: there the model is
/// in training again.
TEST(FineTune, DpoComputesWithoutDropoutAndLeavesTheModeAsItWas) {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool checkpoints : {false, true}) {
    std::string config = test::small_gpt2();
    for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"})
      config.replace(config.find(name) + std::string(name).size() + 3, 3, "0.5");
    torch::manual_seed(1);
    const auto net =
        test::small(config, "text-generation", {.activation_checkpointing = checkpoints});
    lora::add(net, {.r = 4, .lora_dropout = 0.5, .target_modules = {"c_attn"}});
    for (const auto& parameter : net->named_parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter.key().ends_with("lora_B.weight")) at::Tensor(parameter.value()).normal_(0, 0.1);
    }
    const at::Tensor ids = drawn_ids({4, 2, 6});
    const auto objective = dpo_objective(net, {.objective = "dpo"});
    const auto part = net->modules()[3];  // in another mode than the rest
    part->eval();
    std::vector<bool> before, after;
    for (const auto& module : net->modules()) before.push_back(module->is_training());
    const Batch batch{{"input_ids", ids}, {"labels", ids}};
    std::vector<double> losses;
    for (int time = 0; time < 2; ++time) {
      net->zero_grad();
      const StepLoss step = objective->train(batch, {});
      step.loss.backward();
      losses.push_back(step.loss.item<double>());
    }
    EXPECT_EQ(losses[0], losses[1]) << "no dropout";
    for (const auto& module : net->modules()) after.push_back(module->is_training());
    EXPECT_EQ(after, before);
    EXPECT_TRUE(net->is_training());
    auto& found = gradients.emplace_back();
    for (const at::Tensor& parameter : net->parameters()) {
      if (parameter.requires_grad()) found.push_back(parameter.grad().clone());
    }
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (size_t i = 0; i < gradients[0].size(); ++i)
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
}

/// Where the processor has no instructions for it, there is a word of it before the first step.
TEST(FineTune, WeightsOfBfloat16AreWarnedOfWhereTheProcessorIsSlowAtThem) {
  const Scratch scratch;
  const std::string cpu = test::get("/proc/cpuinfo");
  const bool is_fast = cpu.find("flags") == std::string::npos ||  // no x86
                       cpu.find("avx512_bf16") != std::string::npos;
  for (const char* dtype : {"bfloat16", "float32"}) {
    const auto net =
        test::small(test::small_bert(), "text-classification", {.num_labels = 3, .dtype = dtype});
    ::testing::internal::CaptureStderr();
    Trainer(quiet(scratch.path(), 1)).fit(fine_tune(net), texts());
    const std::string said = ::testing::internal::GetCapturedStderr();
    const bool is_warned =
        said.find("got bfloat16 weights, but this CPU has no") != std::string::npos;
    EXPECT_EQ(is_warned, !is_fast && dtype == std::string("bfloat16")) << said;
  }
}

/// Batches of 1, 3 and 2 labels that count, in a window: the loss of one batch of all six.
TEST(FineTune, TheLoggedLossIsThatOfAllBatchesOfAStep) {
  const Scratch scratch;
  torch::manual_seed(1);
  const at::Tensor ids = drawn_ids({6, 7});
  at::Tensor labels = ids.clone();
  labels[0].narrow(0, 3, 4).fill_(-100);
  labels[2].narrow(0, 2, 5).fill_(-100);
  labels[3].fill_(-100);  // nothing of a batch counts
  const auto logged = [&](int64_t batch_size, int64_t accumulate, const std::string& compile) {
    torch::manual_seed(2);
    const auto net = test::small(test::small_qwen3(), "text-generation");
    auto options = quiet(scratch.path(), 4);
    options.accumulate_grad_batches = accumulate;
    options.log_every_n_steps = 1;
    options.engine.compile = compile;
    struct Record : Callback {
      std::string state_key() const override { return "record"; }
      void on_train_batch_end(Trainer& trainer, Module&, const at::Tensor&, const Batch&,
                              int64_t) override {
        if (trainer.global_step() == static_cast<int64_t>(losses.size())) return;
        losses.push_back(trainer.callback_metrics().at("train_loss"));
      }
      std::vector<double> losses;
    };
    const auto record = std::make_shared<Record>();
    options.callbacks = {record};
    Trainer(options).fit(fine_tune(net, {.lr = 1e-2}),
                         DataLoader(data::tensors({{"input_ids", ids}, {"labels", labels}}),
                                    {.batch_size = batch_size}));
    return record->losses;
  };
  const auto whole = logged(6, 1, "no");
  ASSERT_EQ(whole.size(), 4U);
  for (const std::string& compile : {"no", "replay"}) {
    const auto parts = logged(1, 6, compile);
    ASSERT_EQ(parts.size(), 4U);
    for (size_t step = 0; step < whole.size(); ++step)
      EXPECT_NEAR(parts[step], whole[step], 1e-5) << compile << " " << step;
  }
}

TEST(FineTune, AnOptionOfAnotherObjectiveIsAnError) {
  const auto bert = test::small(test::small_bert(), "text-classification");
  const auto writer = test::small(test::small_qwen3(), "text-generation");
  EXPECT_THAT(error_of([&] { fine_tune(bert, {.beta = 0.2}); }),
              HasSubstr("models.fine_tune: got beta = 0.2 for text-classification, which does not "
                        "use it; it is an option of dpo"));
  EXPECT_THAT(error_of([&] { fine_tune(writer, {.objective = "sft", .label_smoothing = 0.1}); }),
              HasSubstr("models.fine_tune: got label_smoothing = 0.1 for sft"));
  EXPECT_THAT(error_of([&] { fine_tune(writer, {.reference = writer}); }),
              HasSubstr("models.fine_tune: got a reference for text-generation"));
  EXPECT_THAT(error_of([&] { fine_tune(bert, {.lr = -1.0}); }),
              HasSubstr("models.fine_tune: got lr = -1"));
}

/// The reference is the model from before: also of what modules_to_save trains.
TEST(FineTune, DpoHoldsModulesThatAreTrainedWholeAgainstTheirValuesFromBefore) {
  const Scratch scratch;
  torch::manual_seed(1);
  const auto net = test::small(test::small_qwen3(), "text-generation");
  const auto before = test::small(test::small_qwen3(), "text-generation");
  const auto own = net->named_parameters();
  for (const auto& parameter : before->named_parameters()) {
    const at::NoGradGuard no_grad;
    at::Tensor(parameter.value()).copy_(own[parameter.key()]);
  }
  lora::add(net, {.r = 4, .target_modules = {"q_proj"}, .modules_to_save = {"lm_head"}});
  const at::Tensor ids = drawn_ids({8, 2, 6});
  const DataLoader pairs(data::tensors({{"input_ids", ids}, {"labels", ids}}), {.batch_size = 4});
  Trainer trainer(quiet(scratch.path(), 6));
  trainer.fit(fine_tune(net, {.objective = "dpo", .lr = 1e-2}), pairs);
  const Metrics itself = trainer.validate(fine_tune(net, {.objective = "dpo"}), pairs);
  const Metrics given =
      trainer.validate(fine_tune(net, {.objective = "dpo", .reference = before}), pairs);
  EXPECT_GT(itself.at("val_rewards/margins"), 0.01);
  for (const char* name : {"val_loss", "val_rewards/margins", "val_rewards/chosen"})
    EXPECT_NEAR(itself.at(name), given.at(name), 1e-5) << name;
}

TEST(FineTune, WhatDoesNotGoTogetherIsAnError) {
  const auto bert = test::small(test::small_bert(), "text-classification");
  EXPECT_THAT(error_of([&] { fine_tune(bert, {.objective = "dpo"}); }),
              HasSubstr("models.fine_tune"));
  EXPECT_THAT(error_of([&] { fine_tune(bert, {.schedule = "cosin"}); }),
              HasSubstr("models.fine_tune"));
  const auto features = test::small(test::small_bert(), "feature-extraction");
  EXPECT_THAT(error_of([&] { fine_tune(features); }), HasSubstr("models.fine_tune"));
}

}  // namespace
}  // namespace levin::models
