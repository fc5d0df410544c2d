#include "levin/models/fine_tune/fine_tune.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/text.h"
#include "levin/models/fine_tune/objective.h"
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
              "a model for feature-extraction has no loss; open it with another task");
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

/// Where the processor has no instructions for it, products in bfloat16 take longer than in float32.
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
        objective_(make_objective(net_, name_, options_)) {
    schedule_of(options_);  // throws
  }

  at::Tensor training_step(const Batch& batch) override {
    const StepLoss step = objective_->train(batch, data_group());
    set_loss_weight(step.count);
    log("train_loss", step.loss.detach(), {.prog_bar = true});
    for (const auto& [name, value] : step.values) log(name, value);
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
    if (options_.max_grad_norm > 0) optimizer.clip_grad_norm(options_.max_grad_norm);
  }

  void on_fit_start() override {
    const auto is_slow = [](const at::Tensor& parameter) {
      return parameter.is_cpu() && parameter.scalar_type() == at::kBFloat16;
    };
    if (!std::ranges::any_of(net_->parameters(), is_slow) || multiplies_bfloat16()) return;
    log::warn(
        "models: weights are bfloat16, which this processor has no instructions for: steps will "
        "take "
        "several times as long as in float32; open the model with dtype = float32");
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
  return std::make_shared<FineTuned>(std::move(net), options);
}

}  // namespace levin::models
