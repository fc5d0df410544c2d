#include "levin/models/adapters/config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/json/known_keys.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/read_file.h"
#include "levin/models/adapters/names.h"
#include "levin/models/pretrained_parts.h"

namespace levin::lora {
namespace {

namespace fs = std::filesystem;
using models::Config;
using OrderedJson = nlohmann::ordered_json;

/// Keys of PEFT's LoraConfig and its base classes.
constexpr std::string_view kAdapterKeys = R"keys(
  read      peft_type task_type r lora_alpha lora_dropout use_rslora use_dora
  read      target_modules exclude_modules layers_to_transform layers_pattern rank_pattern alpha_pattern
  read      modules_to_save ensure_weight_tying init_lora_weights
  harmless  auto_mapping peft_version base_model_name_or_path revision inference_mode   # where it is from
  harmless  fan_in_fan_out                                   # as the layer lies; PEFT corrects it too
  harmless  megatron_core runtime_config qalora_group_size   # of what is refused, or of other machines
  harmless  loftq_config eva_config corda_config lora_ga_config   # of init_lora_weights, which is read
  only      bias = "none"
  only      lora_bias = false
  only      use_qalora = false
  only      use_bdlora = false
  only      layer_replication = []
  only      target_parameters = []
  refused   trainable_token_indices alora_invocation_tokens megatron_config
  refused   arrow_config velora_config monteclora_config kasa_config
)keys";

/// Values of init_lora_weights that leave the base unchanged.
constexpr std::string_view kHarmlessBegins[] = {"gaussian", "orthogonal", "eva"};

void check_keys(const OrderedJson& tree, const std::string& origin) {
  static const levin::detail::KnownKeys known({kAdapterKeys});
  using Verdict = levin::detail::KnownKeys::Verdict;
  std::vector<std::string> unknown;
  for (const auto& [key, value] : tree.items()) {
    const std::string text = value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    const auto [verdict, wanted] = known.judge(key, text);
    if (verdict == Verdict::kUnknown) unknown.push_back(key);
    LEVIN_CHECK(verdict != Verdict::kRefused, "models.lora.options",
                "{} has {} = {}, wanted {}; levin supports no other value: merge the adapter into "
                "its base model with PEFT",
                origin, key, printable(text.substr(0, 60)), wanted);
  }
  levin::detail::warn_of_unknown_keys(origin, unknown);
}

/// PiSSA, OLoRA and their kin take from the base what the adapter begins with: the file alone is not the model.
void check_begin(const OrderedJson& tree, const std::string& origin) {
  if (!tree.contains("init_lora_weights")) return;
  const OrderedJson& begin = tree["init_lora_weights"];
  if (begin.is_null() || begin.is_boolean()) return;
  const std::string name = begin.is_string() ? begin.get<std::string>() : begin.dump();
  LEVIN_CHECK(std::ranges::count(kHarmlessBegins, name) > 0, "models.lora.options",
              "{} has init_lora_weights = {}, which changes the base model's weights or the "
              "training; save the adapter again by PEFT with "
              "path_initial_model_for_weight_conversion, or merge it into its base model",
              origin, printable(name));
}

template <class Value>
std::vector<std::pair<std::string, Value>> pattern_of(const OrderedJson& tree, const char* key,
                                                      const std::string& origin) {
  std::vector<std::pair<std::string, Value>> pattern;
  if (!tree.contains(key) || tree[key].is_null()) return pattern;
  LEVIN_CHECK(tree[key].is_object(), "models.lora.options", "{}: {} is {}, wanted an object",
              origin, key, printable(tree[key].dump().substr(0, 60)));
  for (const auto& [name, value] : tree[key].items()) {
    LEVIN_CHECK(value.is_number(), "models.lora.options", "{}: {} of '{}' is {}, wanted a number",
                origin, key, printable(name), printable(value.dump().substr(0, 60)));
    pattern.emplace_back(name, value.template get<Value>());
  }
  return pattern;
}

bool is_text(const OrderedJson& tree, const char* key) {
  return tree.contains(key) && tree[key].is_string();
}

template <class Value>
OrderedJson object_of(const std::vector<std::pair<std::string, Value>>& pattern) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [name, value] : pattern) object[name] = value;
  return object;
}

}  // namespace

std::string task_type_of(const models::Pretrained& net) {
  const std::map<std::string, std::string> types{{"text-generation", "CAUSAL_LM"},
                                                 {"text-classification", "SEQ_CLS"},
                                                 {"token-classification", "TOKEN_CLS"},
                                                 {"question-answering", "QUESTION_ANS"}};
  const auto type = types.find(net.task());
  return type != types.end() ? type->second : "FEATURE_EXTRACTION";
}

LoraOptions read_config(const fs::path& file) {
  std::error_code error;
  LEVIN_CHECK(fs::exists(file, error), "models.missing",
              "there is no {}; give a folder with an adapter of PEFT", file.string());
  const std::string text = files::read_file(file);
  const auto config = Config::from_json(text, file.string());
  LEVIN_CHECK(config.text("peft_type") == "LORA", "models.lora.options",
              "{} has peft_type = '{}', wanted LORA", file.string(),
              printable(config.text("peft_type")));
  const auto tree = OrderedJson::parse(levin::detail::shallow_json(text), nullptr,
                                       /*allow_exceptions=*/false);
  check_keys(tree, file.string());
  check_begin(tree, file.string());
  LoraOptions options;
  options.task_type = config.text("task_type");
  options.r = config.integer("r", 8);
  options.lora_alpha = config.number("lora_alpha", 8);
  options.lora_dropout = config.number("lora_dropout", 0.0);
  options.use_rslora = config.boolean("use_rslora", false);
  options.use_dora = config.boolean("use_dora", false);
  options.ensure_weight_tying = config.boolean("ensure_weight_tying", false);
  std::string lower = is_text(tree, "target_modules") ? config.text("target_modules") : "";
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "all-linear") {
    options.target_modules = {lower};
  } else if (!lower.empty()) {
    options.target_pattern = config.text("target_modules");
  } else {
    options.target_modules = config.texts("target_modules");
  }
  if (is_text(tree, "exclude_modules")) {
    options.exclude_pattern = config.text("exclude_modules");
  } else {
    options.exclude_modules = config.texts("exclude_modules");
  }
  if (config.has("layers_to_transform"))
    options.layers_to_transform = config.one_or_more("layers_to_transform");
  if (config.has("layers_pattern"))
    options.layers_pattern = config.one_or_more_texts("layers_pattern");
  options.modules_to_save = config.texts("modules_to_save");
  options.rank_pattern = pattern_of<int64_t>(tree, "rank_pattern", file.string());
  options.alpha_pattern = pattern_of<double>(tree, "alpha_pattern", file.string());
  return options;
}

std::string config_text(const LoraOptions& options, const AdaptedNetwork& network) {
  const auto or_null = [](const auto& value) {
    return value.empty() ? OrderedJson() : OrderedJson(value);
  };
  OrderedJson config{{"peft_type", "LORA"},
                     {"base_model_name_or_path", network.base},
                     {"bias", "none"},
                     {"fan_in_fan_out", network.is_transposed},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"lora_alpha", options.lora_alpha},
                     {"lora_dropout", options.lora_dropout},
                     {"r", options.r},
                     {"rank_pattern", object_of(options.rank_pattern)},
                     {"alpha_pattern", object_of(options.alpha_pattern)},
                     {"target_modules", network.targets},
                     {"use_dora", options.use_dora},
                     {"use_rslora", options.use_rslora}};
  config["task_type"] = or_null(network.task_type);
  config["modules_to_save"] = or_null(network.whole);
  if (options.ensure_weight_tying) config["ensure_weight_tying"] = true;
  return config.dump(2) + "\n";
}

std::string config_text(const models::Pretrained& net) {
  const LoraOptions& options = net.adapter();
  AdaptedNetwork network{.base = net.folder().string(),
                         .targets = {},
                         .whole = modules_to_save(net, options),
                         .is_transposed = false,
                         .task_type = options.task_type.value_or(task_type_of(net))};
  for (const Target& each : layers_of(net)) {
    if (!each.layer->has_lora()) continue;
    network.targets.push_back(each.name);
    network.is_transposed = network.is_transposed || each.layer->is_transposed();
  }
  return config_text(options, network);
}

State read_weights(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kWeights;
  std::error_code error;
  LEVIN_CHECK(std::filesystem::exists(file, error), "models.missing",
              "there is no {}; give a folder with an adapter of PEFT", file.string());
  return load_weights(file);
}

}  // namespace levin::lora
