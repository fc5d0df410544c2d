#include "levin/models/fine_tune/fine_tune.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/models/fine_tune/objective.h"
#include "levin/models/fine_tune/window_mean.h"
#include "levin/models/layers/layers.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"

namespace levin::models {
namespace {

std::string objective_for(const std::string& task, const std::string& asked) {
  std::vector<std::string> known{"auto"};
  if (task == "text-generation") {
    known.insert(known.end(), {"lm", "sft", "dpo"});
  } else if (task == "sentence-similarity") {
    known.insert(known.end(), {"in-batch-negatives", "cosine", "triplet"});
  }
  LEVIN_CHECK(task != "feature-extraction", "models.fine_tune",
              "a model for feature-extraction has no loss; load it with another task");
  const auto near = nearest(asked, known);
  LEVIN_CHECK(std::ranges::count(known, asked) > 0, "models.fine_tune",
              "got objective '{}' for {}, wanted one of {}{}", printable(asked), task,
              to_text(known), near ? "; nearest is " + *near : "");
  return asked == "auto" && task == "sentence-similarity" ? "in-batch-negatives" : asked;
}

std::unique_ptr<Objective> make_objective(const std::shared_ptr<Pretrained>& net,
                                          const std::string& name, const FineTuneOptions& options) {
  if (name == "dpo") return dpo_objective(net, options);
  if (net->task() == "sentence-similarity") return embedding_objective(net, name, options);
  return label_objective(net);
}

double default_lr(const std::string& objective) {
  return objective == "sft" ? 2e-5 : objective == "dpo" ? 1e-6 : 5e-5;
}

Schedule schedule_of(const FineTuneOptions& options) {
  if (options.schedule == "linear") return optim::linear({.warmup_steps = options.warmup_steps});
  if (options.schedule == "cosine") return optim::cosine({.warmup_steps = options.warmup_steps});
  LEVIN_CHECK(options.schedule == "constant", "models.fine_tune",
              "got schedule '{}', wanted linear, cosine or constant", printable(options.schedule));
  return optim::constant({.warmup_steps = options.warmup_steps});
}

/// An option of another objective would do nothing.
void check_used(const Pretrained& net, const FineTuneOptions& options) {
  const std::string named = objective_for(net.task(), options.objective);
  const std::string objective = named == "auto" ? net.task() : named;
  const auto given = options_as_text(options), otherwise = options_as_text(FineTuneOptions());
  for (const auto& [name, value] : given) {
    const std::vector<std::string> objectives = objectives_of_option(name);
    const bool is_used = objectives.empty() || std::ranges::count(objectives, objective) > 0;
    LEVIN_CHECK(is_used || value == otherwise.at(name), "models.fine_tune",
                "got {} = {} for {}, which does not use it; it is an option of {}", name, value,
                objective, to_text(objectives));
  }
  LEVIN_CHECK(!options.reference || objective == "dpo", "models.fine_tune",
              "got a reference for {}, which does not use it; only dpo has a reference", objective);
}

void check_numbers(const FineTuneOptions& options) {
  const auto check = [](const char* name, auto value, bool fits, const char* wanted) {
    LEVIN_CHECK(fits, "models.fine_tune", "got {} = {}, wanted {}", name, value, wanted);
  };
  const auto is_decay = [](double value) { return value >= 0 && value < 1; };
  if (options.lr) check("lr", *options.lr, *options.lr > 0, "above 0");
  check("weight_decay", options.weight_decay, options.weight_decay >= 0, "0 or more");
  check("adam_beta1", options.adam_beta1, is_decay(options.adam_beta1), "0 or more and below 1");
  check("adam_beta2", options.adam_beta2, is_decay(options.adam_beta2), "0 or more and below 1");
  check("adam_epsilon", options.adam_epsilon, options.adam_epsilon >= 0, "0 or more");
  check("max_grad_norm", options.max_grad_norm, options.max_grad_norm >= 0, "0 or more");
  check("warmup_steps", options.warmup_steps, options.warmup_steps >= 0, "0 or more");
  check("beta", options.beta, options.beta > 0, "above 0");
  check("label_smoothing", options.label_smoothing,
        options.label_smoothing >= 0 && options.label_smoothing < 0.5, "0 or more and below 0.5");
  check("scale", options.scale, options.scale > 0, "above 0");
  check("margin", options.margin, options.margin >= 0, "0 or more");
  check("recall_at", options.recall_at, options.recall_at >= 1, "at least 1");
}

/// Returns whether the processor has instructions for bfloat16; without them a product in bfloat16
/// takes longer than in float32.
bool multiplies_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return true;
#endif
}

class FineTuned final : public Module {
 public:
  FineTuned(std::shared_ptr<Pretrained> net, FineTuneOptions options)
      : Module("FineTuned"),
        net_(register_module("net", std::move(net))),
        options_(std::move(options)),
        name_(objective_for(net_->task(), options_.objective)),
        objective_(make_objective(net_, name_, options_)) {}

  at::Tensor training_step(const Batch& batch) override {
    const StepLoss step = objective_->train(batch, data_group());
    set_loss_weight(step.count);
    WindowMean::Values values{{"train_loss", step.loss}};
    values.insert(values.end(), step.values.begin(), step.values.end());
    window_.add(values, step.count);
    return step.loss;
  }
  void validation_step(const Batch& batch, int64_t) override { evaluate("val_", batch); }
  void test_step(const Batch& batch, int64_t) override { evaluate("test_", batch); }
  at::Tensor predict_step(const Batch& batch, int64_t) override {
    return objective_->predict(batch);
  }

  OptimizerConfig configure_optimizers() override {
    OptimizerConfig config = optim::adamw({.lr = options_.lr.value_or(default_lr(name_)),
                                           .betas = {options_.adam_beta1, options_.adam_beta2},
                                           .eps = options_.adam_epsilon,
                                           .weight_decay = options_.weight_decay});
    if (options_.weight_decay > 0) {
      for (const std::string& pattern : not_decayed()) config.group(pattern, {.weight_decay = 0.0});
    }
    return config.schedule(schedule_of(options_));
  }

  void on_before_optimizer_step(OptimizerHandle& optimizer) override {
    for (const auto& [name, value] : window_.take(data_group()))
      log(name, value, {.prog_bar = name == "train_loss"});
    if (options_.max_grad_norm > 0) optimizer.clip_grad_norm(options_.max_grad_norm);
  }

  void on_fit_start() override {
    const auto is_slow = [](const at::Tensor& parameter) {
      return parameter.is_cpu() && parameter.scalar_type() == at::kBFloat16;
    };
    if (!std::ranges::any_of(net_->parameters(), is_slow) || multiplies_bfloat16()) return;
    log::warn(
        "models: got bfloat16 weights, but this CPU has no bfloat16 instructions, so steps take "
        "several times as long as in float32; load the model with dtype = float32");
  }

  std::map<std::string, std::string> hparams() const override {
    auto text = options_as_text(options_);
    text["objective"] = name_;
    text["model"] = net_->folder().string();
    return text;
  }

 private:
  void evaluate(const std::string& prefix, const Batch& batch) {
    objective_->evaluate(batch);
    for (const auto& [name, metric] : objective_->metrics()) log(prefix + name, metric);
  }

  /// One pattern for each kind of parameter that does not decay: groups are few, and none is empty.
  std::vector<std::string> not_decayed() const {
    std::vector<std::string> patterns;
    for (const NamedTensor& parameter : levin::named_parameters(*this)) {
      const auto& name = parameter.name;
      const bool is_taken = std::ranges::any_of(
          patterns, [&](const auto& pattern) { return matches(pattern, name); });
      if (is_taken || (decays(name) && !is_of_layer_norm(name))) continue;
      const size_t dot = name.rfind('.', name.rfind('.') - 1);
      patterns.push_back(name.ends_with(".bias") ? "*.bias" : "*" + name.substr(dot));
    }
    return patterns;
  }

  bool is_of_layer_norm(const std::string& name) const {
    const auto modules = named_modules("", /*include_self=*/false);
    const auto* module = modules.find(name.substr(0, name.rfind('.')));
    return module != nullptr && dynamic_cast<const LayerNorm*>(module->get()) != nullptr;
  }

  std::shared_ptr<Pretrained> net_;
  FineTuneOptions options_;
  std::string name_;
  std::unique_ptr<Objective> objective_;
  WindowMean window_;
};

}  // namespace

bool decays(const std::string& name) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto has = [&](const char* part) { return lower.find(part) != std::string::npos; };
  const bool is_norm = has("layernorm") || has("rmsnorm") || has(".norm.") || has("_norm.") ||
                       lower.starts_with("norm.") || lower.ends_with(".norm") ||
                       lower.ends_with("_norm");
  return !has("bias") && !is_norm;
}

std::shared_ptr<Module> fine_tune(std::shared_ptr<Pretrained> net, const FineTuneOptions& options) {
  check_used(*net, options);
  check_numbers(options);
  schedule_of(options);  // throws
  return std::make_shared<FineTuned>(std::move(net), options);
}

}  // namespace levin::models
