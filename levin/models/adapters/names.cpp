#include "levin/models/adapters/names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/models/adapters/config.h"
#include "levin/models/pretrained_parts.h"
#include "levin/text/patterns/pattern.h"

namespace levin::lora {
namespace {

using models::Adaptable;
using models::Pretrained;

bool ends_as(const std::string& name, const std::string& end) {
  return name == end || name.ends_with("." + end);
}

/// Layers of an output, which "all-linear" leaves out.
bool is_output(const std::string& name) {
  const std::vector<std::string> outputs{"lm_head", "score", "classifier", "decoder",
                                         "vocab_projector"};
  return name == "lm_head" || name == "lm_head.decoder" || name == "cls.predictions.decoder" ||
         name.starts_with("classifier") || std::ranges::count(outputs, name) > 0;
}

/// Returns transformers' name of the head's matrix for a head that shares the embedding's matrix.
std::string tied_head(const Pretrained& net) {
  const std::string family = net.config().model_type();
  if (family == "bert") return "cls.predictions.decoder";
  if (family == "roberta" || family == "xlm-roberta") return "lm_head.decoder";
  if (family == "modernbert") return "decoder";
  return family == "distilbert" ? "vocab_projector" : "lm_head";
}

/// The embedding's parameter where the head shares it; empty: it does not.
std::string shared_embedding(Pretrained& net) {
  const models::PretrainedParts& parts = parts_of(net);
  if (!parts.head) return "";
  const auto output = parts.head->output_layer(*parts.body);
  const at::Tensor embedding = parts.body->embedding();
  if (!output || !output->matrix.is_same(embedding)) return "";
  for (const auto& parameter : net.named_parameters())
    if (parameter.value().is_same(embedding)) return parameter.key();
  return "";
}

/// A module to be trained whole has its own copy in PEFT, also where two modules share a matrix.
void check_shared(Pretrained& net, const std::vector<std::string>& wanted,
                  const std::vector<std::string>& found, bool ensure_weight_tying) {
  const std::string embedding = shared_embedding(net);
  if (embedding.empty()) return;
  const std::string head = tied_head(net);
  for (const std::string& name : wanted) {
    for (size_t at = head.find('.');; at = head.find('.', at + 1)) {
      LEVIN_CHECK(
          !head.substr(0, at).ends_with(name), "models.lora.options",
          "modules_to_save has '{}', but the head of this model has no weight of its own: it is "
          "tied to the embedding (tie_word_embeddings); untie the head, or leave '{}' out",
          printable(name), printable(name));
      if (at == std::string::npos) break;
    }
  }
  LEVIN_CHECK(ensure_weight_tying || !is_below(embedding, found), "models.lora.options",
              "modules_to_save trains {}, but it is tied to the head (tie_word_embeddings); PEFT "
              "would leave the head as it was, levin trains the tied weight: set "
              "ensure_weight_tying, or untie the head",
              embedding);
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty()
             ? std::optional(number)
             : std::nullopt;
}

std::vector<std::string_view> pieces_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The number of the layer that a module stands in; without a pattern of the first list of layers that is not at
/// the root, as in PEFT.
std::optional<int64_t> layer_of(const std::string& name, const std::vector<std::string>& patterns) {
  const auto parts = pieces_of(name);
  for (const std::string& pattern : patterns) {
    const auto wanted = pieces_of(pattern);
    for (size_t i = 0; i + wanted.size() + 1 < parts.size(); ++i) {
      const bool is_here = std::equal(wanted.begin(), wanted.end(), parts.begin() + i);
      const auto number = number_in(parts[i + wanted.size()]);
      if (is_here && number) return number;
    }
  }
  if (!patterns.empty()) return std::nullopt;
  for (size_t i = 2; i + 1 < parts.size(); ++i) {
    if (const auto number = number_in(parts[i])) return number;
  }
  return std::nullopt;
}

/// The rule that says which names are adapted.
class TargetRule {
 public:
  TargetRule(const LoraOptions& options, const std::vector<std::string>& defaults)
      : options_(options),
        names_(options.target_modules.empty() && options.target_pattern.empty()
                   ? defaults
                   : options.target_modules) {
    if (!options.target_pattern.empty()) pattern_.emplace(options.target_pattern, "target_modules");
    if (!options.exclude_pattern.empty())
      excluded_.emplace(options.exclude_pattern, "exclude_modules");
    LEVIN_CHECK(options.target_pattern.empty() ||
                    (options.target_modules.empty() && options.layers_to_transform.empty() &&
                     options.layers_pattern.empty()),
                "models.lora.options",
                "got target_pattern together with target_modules, layers_to_transform or "
                "layers_pattern; set either target_pattern or the others");
    LEVIN_CHECK(options.layers_pattern.empty() || !options.layers_to_transform.empty(),
                "models.lora.options", "got layers_pattern without layers_to_transform; set both");
    for (const std::string& pattern : options.layers_pattern)
      LEVIN_CHECK(pattern.find_first_of("\\^$*+?()[]{}|") == std::string::npos,
                  "models.lora.options",
                  "got layers_pattern '{}', wanted a name, such as layers; levin supports no "
                  "regular expression here",
                  printable(pattern));
  }

  bool excludes(const std::string& name) const {
    if (excluded_ && excluded_->fits(name)) return true;
    return std::ranges::any_of(options_.exclude_modules,
                               [&](const std::string& end) { return ends_as(name, end); });
  }

  bool fits(const std::string& name, bool is_linear) {
    if (pattern_) return pattern_->fits(name);
    bool found = false;
    for (const std::string& end : names_) {
      const bool is_all = end == "all-linear";
      if (is_all ? !is_linear || is_output(name) : !ends_as(name, end)) continue;
      used_.insert(end);
      found = found || name == end || is_all || is_in_layers(name);
    }
    return found;
  }

  const std::vector<std::string>& names() const { return names_; }
  bool was_used(const std::string& end) const { return used_.contains(end); }

 private:
  bool is_in_layers(const std::string& name) const {
    const auto& layers = options_.layers_to_transform;
    if (layers.empty()) return true;
    const auto layer = layer_of(name, options_.layers_pattern);
    return layer && std::ranges::count(layers, *layer) > 0;
  }

  const LoraOptions& options_;
  std::vector<std::string> names_;
  std::optional<NamePattern> pattern_, excluded_;
  std::set<std::string> used_;
};

[[noreturn]] void fail_target(const std::string& wanted, std::vector<std::string> ends) {
  const auto near = nearest(wanted, ends);
  std::ranges::sort(ends);
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
  LEVIN_FAIL("models.lora.target",
             "no linear layer is called '{}', wanted all-linear or some of {}{}", printable(wanted),
             to_text(ends), near ? "; nearest is " + *near : "");
}

std::vector<NamedModule> modules_of(const Pretrained& net) {
  std::vector<NamedModule> modules;
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    const bool is_linear = dynamic_cast<Adaptable*>(module.value().get()) != nullptr;
    modules.push_back({module.key(), is_linear});
  }
  return modules;
}

std::string last_part(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(dot + 1);
}

}  // namespace

struct NamePattern::Parts {
  text::PatternPtr pattern;
};

NamePattern::NamePattern(const std::string& expression, const char* key)
    : parts_(std::make_unique<Parts>()) {
  try {
    parts_->pattern = text::compile_expression("\\A(?:" + expression + ")\\z");
  } catch (const Error& error) {
    LEVIN_FAIL("models.lora.options",
               "{} has the regular expression '{}', which levin cannot parse: {}", key,
               printable(expression), error.text());
  }
}
NamePattern::~NamePattern() = default;
NamePattern::NamePattern(NamePattern&&) noexcept = default;

bool NamePattern::fits(const std::string& name) const {
  std::vector<text::Bytes> found;
  parts_->pattern->find(name, found);
  return !found.empty();
}

void check_numbers(const LoraOptions& options) {
  LEVIN_CHECK(options.r >= 1 && options.lora_dropout >= 0 && options.lora_dropout < 1,
              "models.lora.options",
              "got r = {} and lora_dropout = {}, wanted r >= 1 and 0 <= lora_dropout < 1",
              options.r, options.lora_dropout);
  for (const auto& [name, r] : options.rank_pattern)
    LEVIN_CHECK(r >= 1, "models.lora.options", "got rank_pattern of {} = {}, wanted at least 1",
                printable(name), r);
}

bool is_below(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const std::string& module) {
    return name == module || name.starts_with(module + ".");
  });
}

std::vector<Target> layers_of(const Pretrained& net) {
  std::vector<Target> layers;
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    if (auto* layer = dynamic_cast<Adaptable*>(module.value().get()))
      layers.push_back({module.key(), layer});
  }
  return layers;
}

std::vector<std::string> modules_to_save(const Pretrained& net, const LoraOptions& options) {
  std::vector<std::string> names = options.modules_to_save;
  const std::string type = options.task_type.value_or(task_type_of(net));
  std::vector<std::string> heads;
  if (type == "SEQ_CLS" || type == "TOKEN_CLS") heads = {"classifier", "score"};
  if (type == "QUESTION_ANS") heads = {"qa_outputs"};
  for (const std::string& head : heads) {
    if (std::ranges::count(names, head) == 0) names.push_back(head);
  }
  return names;
}

std::vector<std::string> named_whole(const std::vector<NamedModule>& modules,
                                     const std::vector<std::string>& wanted) {
  std::vector<std::string> found;
  for (const NamedModule& module : modules) {
    for (const std::string& name : wanted) {
      if (name.empty() || !module.name.ends_with(name)) continue;
      if (!is_below(module.name, found)) found.push_back(module.name);
    }
  }
  return found;
}

void check_whole(const std::vector<NamedModule>& modules, const LoraOptions& options, Names names) {
  for (const std::string& name : options.modules_to_save) {
    const bool is_head = name == "classifier" || name == "score" || name == "qa_outputs";
    const bool is_used =
        !name.empty() && std::ranges::any_of(modules, [&](const NamedModule& module) {
          return module.name.ends_with(name);
        });
    if (is_used || (is_head && names == Names::kSome)) continue;
    if (names == Names::kSome) {
      log::warn("lora: modules_to_save has '{}', but no module's name in this model ends with it",
                printable(name));
      continue;
    }
    std::vector<std::string> ends;
    for (const NamedModule& module : modules) ends.push_back(last_part(module.name));
    const auto near = nearest(name, ends);
    LEVIN_FAIL(
        "models.lora.target",
        "modules_to_save has '{}', but no module's name ends with it, so it would train nothing{}",
        printable(name), near ? "; nearest is " + *near : "");
  }
}

std::vector<std::string> whole_modules(Pretrained& net, const LoraOptions& options, Names names) {
  const std::vector<std::string> wanted = modules_to_save(net, options);
  const auto modules = modules_of(net);
  const auto found = named_whole(modules, wanted);
  check_shared(net, wanted, found, options.ensure_weight_tying);
  check_whole(modules, options, names);
  return found;
}

std::string tied_weight(Pretrained& net) {
  if (!net.adapter().ensure_weight_tying) return "";
  const std::string embedding = shared_embedding(net);
  const bool is_trained = !embedding.empty() && is_below(embedding, parts_of(net).lora_whole);
  return is_trained ? tied_head(net) + ".weight" : "";
}

std::vector<std::string> target_names(const std::vector<NamedModule>& modules,
                                      const LoraOptions& options,
                                      const std::vector<std::string>& defaults,
                                      const std::vector<std::string>& whole, Names names) {
  TargetRule rule(options, defaults);
  std::vector<std::string> chosen, ends;
  for (const auto& [name, is_linear] : modules) {
    if (rule.excludes(name) || is_below(name, whole)) continue;
    if (is_linear) ends.push_back(last_part(name));
    if (!rule.fits(name, is_linear)) continue;
    LEVIN_CHECK(
        is_linear, "models.lora.target",
        "target_modules names {}, which is not a linear layer; levin adapts linear layers only",
        name);
    chosen.push_back(name);
  }
  for (const std::string& end : rule.names()) {
    if (names == Names::kAll && !rule.was_used(end)) fail_target(end, ends);
  }
  if (!chosen.empty()) return chosen;
  LEVIN_CHECK(
      options.layers_to_transform.empty(), "models.lora.target",
      "no linear layer is in the layers {} (layers_to_transform) and has one of the names {}",
      to_text(options.layers_to_transform), to_text(rule.names()));
  fail_target(options.target_pattern.empty() ? to_text(rule.names()) : options.target_pattern,
              ends);
}

std::vector<Target> targets_of(const Pretrained& net, const LoraOptions& options,
                               const std::vector<std::string>& whole, Names names) {
  const auto chosen = target_names(modules_of(net), options, net.lora_targets(), whole, names);
  std::vector<Target> targets;
  for (const Target& each : layers_of(net)) {
    if (std::ranges::find(chosen, each.name) != chosen.end()) targets.push_back(each);
  }
  return targets;
}

}  // namespace levin::lora
