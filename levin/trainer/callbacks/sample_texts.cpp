#include "levin/trainer/callbacks/sample_texts.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/models/pretrained.h"
#include "levin/models/to_batch.h"
#include "levin/module/evaluation_mode.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

models::Pretrained& pretrained_of(const Module& module) {
  for (const auto& part : module.modules()) {
    if (auto* net = dynamic_cast<models::Pretrained*>(part.get())) return *net;
  }
  LEVIN_FAIL("trainer.sample_texts",
             "the module has no models::Pretrained, which alone can write; register it");
}

Batch batch_of(const SampleTextsOptions& options) {
  if (!options.chat) return models::to_prompts(*options.tokenizer, options.prompts);
  std::vector<text::Encoding> encodings;
  for (const std::string& said : options.prompts) {
    auto chat =
        options.tokenizer->apply_chat_template({{"user", said}}, {.add_generation_prompt = true});
    encodings.push_back(std::move(chat.encoding));
  }
  return models::to_prompts(*options.tokenizer, encodings);
}

}  // namespace

SampleTexts::SampleTexts(SampleTextsOptions options) : options_(std::move(options)) {
  LEVIN_CHECK(!options_.prompts.empty(), "trainer.sample_texts", "got no prompts");
  LEVIN_CHECK(options_.tokenizer != nullptr, "trainer.sample_texts", "got no tokenizer");
  LEVIN_CHECK(!options_.chat || options_.tokenizer->chat_template(), "trainer.sample_texts",
              "the tokenizer has no chat template; leave out chat, and give prompts as texts");
  LEVIN_CHECK(options_.every_n_steps >= 0 && options_.every_n_epochs >= 0, "trainer.sample_texts",
              "got every_n_steps = {} and every_n_epochs = {}, wanted 0 or more",
              options_.every_n_steps, options_.every_n_epochs);
  options_.generate.tokenizer = options_.tokenizer.get();
}

void SampleTexts::on_fit_start(Trainer& trainer, Module& module) {
  pretrained_of(module);
  const at::Device device = trainer.accelerator().device();
  LEVIN_CHECK(device.is_cpu() || device.is_cuda(), "trainer.sample_texts",
              "got device {}, where each token would be a program of its own; sample on cpu or gpu",
              device.str());
}

void SampleTexts::on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor&,
                                     const Batch&, int64_t) {
  const int64_t step = trainer.global_step();
  if (options_.every_n_steps == 0 || step == 0 || step % options_.every_n_steps != 0) return;
  if (step != sampled_at_ && trainer.at_step_boundary()) sample(trainer, module);
}

void SampleTexts::on_train_epoch_end(Trainer& trainer, Module& module) {
  const int64_t every = options_.every_n_epochs;
  if (every == 0 || (trainer.current_epoch() + 1) % every != 0) return;
  if (trainer.global_step() != sampled_at_) sample(trainer, module);
}

// As the loop of a validation. All ranks write the same, as each computes a part of it.
void SampleTexts::sample(Trainer& trainer, Module& module) {
  sampled_at_ = trainer.global_step();
  Accelerator& accelerator = trainer.accelerator();
  models::GenerateOptions generate = options_.generate;
  if (!generate.seed) generate.seed = derive_seed(0, static_cast<uint64_t>(sampled_at_));
  const EvaluationMode mode(module);
  accelerator.strategy().agree_on_buffers();
  models::Generated written;
  {
    const at::NoGradGuard no_grad;
    const ForwardScope scope = accelerator.evaluation_scope();
    written = pretrained_of(module).generate(batch_of(options_), generate);
  }
  accelerator.strategy().end_evaluation();
  if (accelerator.is_main_process()) tell(trainer, written.texts);
}

void SampleTexts::tell(const Trainer& trainer, const std::vector<std::string>& texts) const {
  const size_t each = texts.size() / options_.prompts.size();  // num_return_sequences
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& prompt = options_.prompts[i / each];
    all += fmt::format("== step {}: {}\n{}\n", sampled_at_, prompt, texts[i]);
    if (options_.on_sample) options_.on_sample(sampled_at_, prompt, texts[i]);
  }
  if (options_.print) log::info("{}", all);
  const std::string folder = trainer.log_dir();
  if (options_.file.empty() || folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::ofstream(std::filesystem::path(folder) / options_.file, std::ios::app) << all;
}

std::shared_ptr<SampleTexts> sample_texts(SampleTextsOptions options) {
  return std::make_shared<SampleTexts>(std::move(options));
}

}  // namespace levin
