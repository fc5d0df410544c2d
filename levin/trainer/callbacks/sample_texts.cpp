#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/random.h"
#include "levin/files/writing/output.h"
#include "levin/models/generate/settings.h"
#include "levin/models/pretrained.h"
#include "levin/models/pretrained_parts.h"
#include "levin/module/evaluation_mode.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class SampleTexts : public Callback {
 public:
  /// Throws Error "trainer.sample_texts" without a prompt or a tokenizer, for options out of range,
  /// and if every_n_steps and every_n_epochs are both 0. on_fit_start throws it if the module has
  /// no models::Pretrained, if the file cannot be written, and on XLA devices; it also throws the
  /// errors of generate() for its options.
  explicit SampleTexts(SampleTextsOptions options);

  std::string state_key() const override { return "sample_texts"; }
  /// The length of the file: a run resumed in its folder drops texts from after the checkpoint.
  State state_dict() const override;
  void load_state_dict(const State& state) override;
  void on_load_checkpoint(Trainer& trainer, Module& module, const State& checkpoint) override;
  void on_fit_start(Trainer& trainer, Module& module) override;
  void on_train_batch_end(Trainer& trainer, Module& module, const at::Tensor& loss,
                          const Batch& batch, int64_t batch_index) override;
  void on_train_epoch_end(Trainer& trainer, Module& module) override;

 private:
  void sample(Trainer& trainer, Module& module);
  void tell(const Trainer& trainer, const std::vector<std::string>& texts);
  /// Appends to the file; throws Error "files.replace" and "files.write".
  void append(const Trainer& trainer, const std::string& texts);

  SampleTextsOptions options_;
  int64_t sampled_at_ = -1;  // global step
  std::string path_;         // path of the file; empty: none
  int64_t bytes_ = -1;       // bytes of the file at the checkpoint; -1: not known
  bool told_ = false;        // the warning that the file cannot be written was printed
};

constexpr std::string_view kBeginning = "== step ";  // of each text in the file

models::Pretrained& pretrained_of(const Module& module) {
  for (const auto& part : module.modules()) {
    if (auto* net = dynamic_cast<models::Pretrained*>(part.get())) return *net;
  }
  LEVIN_FAIL(
      "trainer.sample_texts",
      "the module has no models::Pretrained to generate text with; register one as a submodule");
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
  LEVIN_CHECK(!options_.prompts.empty(), "trainer.sample_texts", "got no prompts; set prompts");
  LEVIN_CHECK(options_.tokenizer != nullptr, "trainer.sample_texts",
              "got no tokenizer; set tokenizer");
  LEVIN_CHECK(
      !options_.chat || options_.tokenizer->chat_template(), "trainer.sample_texts",
      "the tokenizer has no chat template; leave out chat, and give the prompts as plain text");
  LEVIN_CHECK(options_.every_n_steps >= 0 && options_.every_n_epochs >= 0, "trainer.sample_texts",
              "got every_n_steps = {} and every_n_epochs = {}, wanted 0 or more",
              options_.every_n_steps, options_.every_n_epochs);
  LEVIN_CHECK(options_.every_n_steps > 0 || options_.every_n_epochs > 0, "trainer.sample_texts",
              "got every_n_steps = 0 and every_n_epochs = 0, so no text is ever generated; set one "
              "of them");
  const std::filesystem::path file = options_.file;
  const bool is_inside = file.is_relative() && std::ranges::find(file, "..") == file.end();
  LEVIN_CHECK(is_inside, "trainer.sample_texts",
              "got file = '{}', wanted a relative path within the run's log folder", options_.file);
  options_.generate.tokenizer = options_.tokenizer.get();
}

// Reports errors of generate() before the first batch.
void SampleTexts::on_fit_start(Trainer& trainer, Module& module) {
  models::PretrainedParts& parts = parts_of(pretrained_of(module));
  LEVIN_CHECK(parts.task == models::Task::kTextGeneration && parts.body->is_causal(),
              "trainer.sample_texts", "a model for {} cannot generate text; leave the callback out",
              pretrained_of(module).task());
  const int64_t prompt = batch_of(options_)["input_ids"].size(1);
  static_cast<void>(models::GenerateSettings::of(options_.generate, parts.generation, parts.config,
                                                 prompt, parts.body->longest()));
  trainer.accelerator().all_or_throw([&] {
    if (trainer.accelerator().is_main_process()) append(trainer, "");
  });
  const at::Device device = trainer.accelerator().device();
  LEVIN_CHECK(device.is_cpu() || device.is_cuda(), "trainer.sample_texts",
              "got device {}, where every token would be compiled separately; sample on cpu or gpu",
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

// Runs like a validation loop. All ranks generate the same texts, as each computes a part of them.
void SampleTexts::sample(Trainer& trainer, Module& module) {
  sampled_at_ = trainer.global_step();
  Accelerator& accelerator = trainer.accelerator();
  models::GenerateOptions generate = options_.generate;
  if (!generate.seed) generate.seed = derive_seed(0, static_cast<uint64_t>(sampled_at_));
  const EvaluationMode mode(module);
  engine_of(accelerator).strategy().agree_on_buffers();
  models::Generated written;
  {
    const at::NoGradGuard no_grad;
    const ForwardScope scope = accelerator.evaluation_scope();
    written = pretrained_of(module).generate(batch_of(options_), generate);
  }
  engine_of(accelerator).strategy().end_evaluation();
  if (accelerator.is_main_process()) tell(trainer, written.texts);
}

void SampleTexts::tell(const Trainer& trainer, const std::vector<std::string>& texts) {
  const size_t each = texts.size() / options_.prompts.size();  // num_return_sequences
  std::string all;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& prompt = options_.prompts[i / each];
    all += fmt::format("{}{}: {}\n{}\n", kBeginning, sampled_at_, prompt, texts[i]);
    if (options_.on_sample) options_.on_sample(sampled_at_, prompt, texts[i]);
  }
  if (options_.print) log::info("{}", all);
  try {
    append(trainer, all);
  } catch (const Error& error) {  // a full disk is no reason to end the run
    if (!std::exchange(told_, true)) log::warn("{}; training continues", error.text());
  }
}

State SampleTexts::state_dict() const {
  State state;
  std::error_code error;
  const auto bytes = path_.empty() ? 0 : std::filesystem::file_size(path_, error);
  state.set("bytes", path_.empty() || error ? int64_t{-1} : static_cast<int64_t>(bytes));
  return std::move(state.set("sampled_at", sampled_at_));
}

void SampleTexts::load_state_dict(const State& state) {
  if (!state.contains("bytes")) return;
  bytes_ = state.integer("bytes");
  sampled_at_ = state.integer("sampled_at");
}

void SampleTexts::on_load_checkpoint(Trainer& trainer, Module&, const State&) {
  const std::string folder = trainer.log_dir();
  if (!trainer.resumed_in_place() || bytes_ < 0 || folder.empty()) return;
  const std::filesystem::path path = std::filesystem::path(folder) / options_.file;
  try {
    files::check_own(path, kBeginning);
  } catch (const Error& error) {
    log::warn("{}", error.text());
    return;
  }
  std::error_code error;
  const auto there = std::filesystem::file_size(path, error);
  if (error || static_cast<int64_t>(there) <= bytes_) return;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(bytes_), error);
  if (error) log::warn("cannot cut '{}': {}", path.string(), error.message());
}

void SampleTexts::append(const Trainer& trainer, const std::string& texts) {
  const std::string folder = trainer.log_dir();
  if (options_.file.empty() || folder.empty()) return;
  const std::filesystem::path path = std::filesystem::path(folder) / options_.file;
  path_ = path.string();
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  files::append_text(path, texts, kBeginning);
}

std::shared_ptr<Callback> sample_texts(SampleTextsOptions options) {
  return std::make_shared<SampleTexts>(std::move(options));
}

}  // namespace levin
