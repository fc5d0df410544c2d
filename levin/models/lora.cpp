#include "levin/models/lora.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"
#include "levin/files/read_file.h"
#include "levin/models/layers/adaptable.h"
#include "levin/models/pretrained_parts.h"

namespace levin::lora {
namespace {

namespace fs = std::filesystem;
using models::Adaptable;
using models::Pretrained;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kWeights = "adapter_model.safetensors";

struct Named {
  std::string name;
  Adaptable* layer;
};

/// All linear layers, by their names.
std::vector<Named> layers_of(const Pretrained& net) {
  std::vector<Named> layers;
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Adaptable*>(module.value().get()))
      layers.push_back({module.key(), layer});
  }
  return layers;
}

bool ends_as(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

template <class Value>
Value of_pattern(const std::map<std::string, Value>& pattern, const std::string& name,
                 Value otherwise) {
  for (const auto& [end, value] : pattern) {
    if (ends_as(name, end)) return value;
  }
  return otherwise;
}

/// As PEFT has it: the head of a classification is trained whole.
std::vector<std::string> trained_whole(const Pretrained& net, const LoraOptions& options) {
  std::vector<std::string> names = options.modules_to_save;
  const std::string task = net.task();
  if (task == "text-classification" || task == "token-classification") {
    for (const char* head : {"classifier", "score"}) {
      if (std::ranges::count(names, head) == 0) names.emplace_back(head);
    }
  }
  return names;
}

bool is_below(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return ("." + name + ".").find("." + module + ".") != std::string::npos;
  });
}

/// Layers of an output, which "all-linear" leaves out.
bool is_output(const std::string& name) {
  const std::vector<std::string> outputs{"lm_head", "score", "classifier", "decoder",
                                         "vocab_projector"};
  return name == "lm_head" || name == "lm_head.decoder" || name == "cls.predictions.decoder" ||
         name.starts_with("classifier") || std::ranges::count(outputs, name) > 0;
}

std::vector<Named> targets_of(const Pretrained& net, const LoraOptions& options,
                              const std::vector<std::string>& whole) {
  const auto& wanted = options.target_modules.empty() ? net.lora_targets() : options.target_modules;
  std::vector<Named> chosen;
  std::vector<std::string> ends;
  std::set<std::string> used;
  for (const Named& each : layers_of(net)) {
    if (is_below(each.name, whole)) continue;
    const size_t dot = each.name.rfind('.');
    ends.push_back(dot == std::string::npos ? each.name : each.name.substr(dot + 1));
    for (const std::string& end : wanted) {
      if (end == "all-linear" ? is_output(each.name) : !ends_as(each.name, end)) continue;
      used.insert(end);
      chosen.push_back(each);
      break;
    }
  }
  for (const std::string& end : wanted) {
    if (used.contains(end)) continue;
    const auto near = nearest(end, ends);
    std::ranges::sort(ends);
    ends.erase(std::ranges::unique(ends).begin(), ends.end());
    LEVIN_FAIL("models.lora.target",
               "no linear layer is called '{}', wanted all-linear or some of {}{}", printable(end),
               to_text(ends), near ? "; nearest is " + *near : "");
  }
  return chosen;
}

void check(const LoraOptions& options) {
  LEVIN_CHECK(options.r >= 1 && options.lora_dropout >= 0 && options.lora_dropout < 1,
              "models.lora.options",
              "got r = {} and lora_dropout = {}, wanted at least 1 and a probability below 1",
              options.r, options.lora_dropout);
  for (const auto& [name, r] : options.rank_pattern)
    LEVIN_CHECK(r >= 1, "models.lora.options", "got rank_pattern of {} = {}, wanted at least 1",
                printable(name), r);
}

/// A pattern that is for no module would leave its number out without a word.
template <class Value>
void check_pattern(const std::map<std::string, Value>& pattern, const std::vector<Named>& targets,
                   const char* which) {
  for (const auto& [end, value] : pattern) {
    const bool is_used =
        std::ranges::any_of(targets, [&](const Named& each) { return ends_as(each.name, end); });
    LEVIN_CHECK(is_used, "models.lora.options",
                "{} has '{}', with which no adapted module's name ends", which, printable(end));
  }
}

/// Name in an adapter's file of each parameter that it holds.
std::map<std::string, at::Tensor> own_weights(const Pretrained& net) {
  const std::vector<std::string> whole = trained_whole(net, net.adapter());
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : net.named_parameters()) {
    const std::string& name = parameter.key();
    if (name.find(".lora_") != std::string::npos || is_below(name, whole))
      weights.emplace(kPrefix + name, parameter.value());
  }
  return weights;
}

OrderedJson config_of(const Pretrained& net) {
  const LoraOptions& options = net.adapter();
  std::vector<std::string> targets;
  bool is_transposed = false;
  for (const Named& each : layers_of(net)) {
    if (!each.layer->has_lora()) continue;
    targets.push_back(each.name);
    is_transposed = is_transposed || each.layer->is_transposed();
  }
  const std::map<std::string, const char*> types{{"text-generation", "CAUSAL_LM"},
                                                 {"text-classification", "SEQ_CLS"},
                                                 {"token-classification", "TOKEN_CLS"},
                                                 {"question-answering", "QUESTION_ANS"}};
  const auto type = types.find(net.task());
  OrderedJson config{{"peft_type", "LORA"},
                     {"base_model_name_or_path", net.folder().string()},
                     {"bias", "none"},
                     {"fan_in_fan_out", is_transposed},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", options.lora_alpha},
                     {"lora_dropout", options.lora_dropout},
                     {"r", options.r},
                     {"rank_pattern", options.rank_pattern},
                     {"alpha_pattern", options.alpha_pattern},
                     {"target_modules", targets},
                     {"use_dora", options.use_dora},
                     {"use_rslora", options.use_rslora}};
  config["task_type"] =
      type != types.end() ? OrderedJson(type->second) : OrderedJson("FEATURE_EXTRACTION");
  const auto whole = trained_whole(net, options);
  config["modules_to_save"] = whole.empty() ? OrderedJson() : OrderedJson(whole);
  return config;
}

LoraOptions read_config(const fs::path& file) {
  std::error_code error;
  LEVIN_CHECK(fs::exists(file, error), "models.missing", "there is no {}", file.string());
  const std::string text = files::read_file(file);
  const auto config = models::Config::from_json(text, file.string());
  LEVIN_CHECK(config.text("peft_type") == "LORA", "models.lora.options",
              "{} is of type '{}'; levin has LORA", file.string(),
              printable(config.text("peft_type")));
  LEVIN_CHECK(config.text("bias", "none") == "none", "models.lora.options",
              "{} trains biases ('{}'), which levin's adapters do not", file.string(),
              printable(config.text("bias")));
  for (const char* key : {"layers_to_transform", "layer_replication", "trainable_token_indices",
                          "target_parameters", "exclude_modules", "alora_invocation_tokens"}) {
    LEVIN_CHECK(!config.has(key), "models.lora.options",
                "{} asks for {}, which levin does not have", file.string(), key);
  }
  for (const char* key : {"lora_bias", "use_qalora", "use_bdlora"}) {
    LEVIN_CHECK(!config.has(key) || !config.boolean(key, false), "models.lora.options",
                "{} asks for {}, which levin does not have", file.string(), key);
  }
  LoraOptions options;
  options.r = config.integer("r", 8);
  options.lora_alpha = config.number("lora_alpha", 8);
  options.lora_dropout = config.number("lora_dropout", 0.0);
  options.use_rslora = config.boolean("use_rslora", false);
  options.use_dora = config.boolean("use_dora", false);
  const OrderedJson tree = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) { return tree.contains(key) && tree[key].is_string(); };
  if (is_text("target_modules")) {
    options.target_modules = {config.text("target_modules")};
  } else {
    options.target_modules = config.texts("target_modules");
  }
  options.modules_to_save = config.texts("modules_to_save");
  const auto ranks = config.child("rank_pattern"), alphas = config.child("alpha_pattern");
  for (const std::string& key : ranks.keys()) options.rank_pattern[key] = ranks.integer(key);
  for (const std::string& key : alphas.keys()) options.alpha_pattern[key] = alphas.number(key);
  return options;
}

}  // namespace

void add(Pretrained& net, const LoraOptions& options) {
  check(options);
  LEVIN_CHECK(!net.has_adapter(), "models.lora.twice",
              "the model has an adapter; merge it, or open the model anew");
  const auto whole = trained_whole(net, options);
  const auto targets = targets_of(net, options, whole);
  check_pattern(options.rank_pattern, targets, "rank_pattern");
  check_pattern(options.alpha_pattern, targets, "alpha_pattern");
  for (const auto& parameter : net.named_parameters()) {
    at::Tensor tensor = parameter.value();
    tensor.set_requires_grad(is_below(parameter.key(), whole));
  }
  for (const Named& each : targets) {
    const auto r = of_pattern(options.rank_pattern, each.name, options.r);
    const double alpha = of_pattern(options.alpha_pattern, each.name, options.lora_alpha);
    const double rank = static_cast<double>(r);
    each.layer->add_lora({.r = r,
                          .scale = alpha / (options.use_rslora ? std::sqrt(rank) : rank),
                          .dropout = options.lora_dropout,
                          .dora = options.use_dora});
  }
  net.parts().lora = std::make_unique<LoraOptions>(options);
}

void save(const Pretrained& net, const fs::path& folder) {
  LEVIN_CHECK(net.has_adapter(), "models.lora.none",
              "the model has no adapter; lora::add gives it one");
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(), error.message());
  State weights;
  for (const auto& [name, parameter] : own_weights(net)) weights.set(name, parameter.detach());
  save_weights(folder / kWeights, weights);
  files::write_file_atomically(folder / kConfig, config_of(net).dump(2) + "\n");
}

void load(Pretrained& net, const fs::path& folder) {
  const LoraOptions options = read_config(folder / kConfig);
  std::error_code error;
  LEVIN_CHECK(fs::exists(folder / kWeights, error), "models.missing", "there is no {}",
              (folder / kWeights).string());
  const State weights = load_weights(folder / kWeights);
  add(net, options);
  std::map<std::string, at::Tensor> parameters = own_weights(net);
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : weights.values()) {
    const auto found = parameters.find(name);
    LEVIN_CHECK(found != parameters.end(), "models.lora.weights",
                "{} holds {}, for which the model has no place; it is of another model",
                folder.string(), printable(name));
    const at::Tensor& given = weights.tensor(name);
    LEVIN_CHECK(given.sizes() == found->second.sizes(), "models.lora.weights",
                "{}: {} has sizes {}, wanted {}; it is of another model", folder.string(),
                printable(name), c10::str(given.sizes()), c10::str(found->second.sizes()));
    found->second.copy_(given);
    parameters.erase(found);
  }
  // A head that the adapter does not have stays the model's own.
  for (const auto& [name, parameter] : parameters) {
    LEVIN_CHECK(name.find(".lora_") == std::string::npos, "models.lora.weights",
                "{} has no weights for {}; it is not whole, or of another model", folder.string(),
                name);
  }
}

void merge(Pretrained& net) {
  for (const Named& each : layers_of(net)) each.layer->merge();
}

void unmerge(Pretrained& net) {
  for (const Named& each : layers_of(net)) each.layer->unmerge();
}

WithoutAdapter::WithoutAdapter(Pretrained& net) : net_(net) {
  for (const Named& each : layers_of(net)) each.layer->set_adapter_enabled(false);
}
WithoutAdapter::~WithoutAdapter() {
  for (const Named& each : layers_of(net_)) each.layer->set_adapter_enabled(true);
}

}  // namespace levin::lora
