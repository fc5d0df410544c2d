#include "levin/models/lora.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"
#include "levin/models/adapters/config.h"
#include "levin/models/adapters/names.h"
#include "levin/models/pretrained_parts.h"
#include "levin/module/loading/casts.h"

namespace levin::lora {
namespace {

namespace fs = std::filesystem;
using models::Pretrained;

/// A pattern that is for no module would leave its number out without a word.
template <class Value>
void check_pattern(const std::vector<std::pair<std::string, Value>>& pattern,
                   const std::vector<Target>& targets, const char* which) {
  for (const auto& one : pattern) {
    const std::vector<std::pair<std::string, bool>> alone{{one.first, true}};
    const bool is_used = std::ranges::any_of(
        targets, [&](const Target& each) { return of_pattern(alone, each.name, false, which); });
    LEVIN_CHECK(is_used, "models.lora.options",
                "{} has the key '{}', but no adapted module's name ends with it", which,
                printable(one.first));
  }
}

/// Name in an adapter's file of each parameter that it holds.
std::map<std::string, at::Tensor> own_weights(Pretrained& net) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& parameter : net.named_parameters()) {
    const std::string& name = parameter.key();
    if (name.find(".lora_") != std::string::npos || is_below(name, parts_of(net).lora_whole))
      weights.emplace(kPrefix + name, parameter.value());
  }
  return weights;
}

/// The values from before stay where they lie, mostly in the map of the model's file: PEFT's original_module.
void train_whole(Pretrained& net) {
  for (const auto& parameter : net.named_parameters()) {
    at::Tensor tensor = parameter.value();
    const bool is_whole = is_below(parameter.key(), parts_of(net).lora_whole);
    tensor.set_requires_grad(is_whole);
    if (!is_whole) continue;
    parts_of(net).lora_originals.emplace_back(tensor, tensor.detach().alias());
    tensor.set_data(tensor.detach().clone());
  }
}

void add(Pretrained& net, const LoraOptions& options, Names names) {
  check_numbers(options);
  LEVIN_CHECK(!net.has_adapter(), "models.lora.twice",
              "the model already has an adapter; merge it, or load the model again");
  const auto whole = whole_modules(net, options, names);
  const auto targets = targets_of(net, options, whole, names);
  if (names == Names::kAll) {
    check_pattern(options.rank_pattern, targets, "rank_pattern");
    check_pattern(options.alpha_pattern, targets, "alpha_pattern");
  }
  parts_of(net).lora_whole = whole;
  train_whole(net);
  for (const Target& each : targets) {
    const auto r = of_pattern(options.rank_pattern, each.name, options.r, "rank_pattern");
    const double alpha =
        of_pattern(options.alpha_pattern, each.name, options.lora_alpha, "alpha_pattern");
    const double rank = static_cast<double>(r);
    each.layer->add_lora({.r = r,
                          .scale = alpha / (options.use_rslora ? std::sqrt(rank) : rank),
                          .dropout = options.lora_dropout,
                          .dora = options.use_dora});
  }
  parts_of(net).lora = std::make_unique<LoraOptions>(options);
}

/// A weight of a file that the adapted model has no place for.
[[noreturn]] void fail_weight(const Pretrained& net, const fs::path& folder,
                              const std::string& name) {
  const bool is_of_base = name.starts_with(kPrefix) &&
                          net.named_parameters().contains(name.substr(std::string(kPrefix).size()));
  if (is_of_base) {
    LEVIN_FAIL(
        "models.lora.weights",
        "{} holds {}, a weight of the base model that adapter_config.json does not name (PEFT "
        "saves resized embeddings this way); merge the adapter into its base model with PEFT",
        folder.string(), printable(name));
  }
  LEVIN_FAIL("models.lora.weights",
             "{} holds {}, but the model has no such weight; the adapter belongs to another model",
             folder.string(), printable(name));
}

}  // namespace

void add(Pretrained& net, const LoraOptions& options) { add(net, options, Names::kAll); }

void save(const Pretrained& net, const fs::path& folder) {
  LEVIN_CHECK(net.has_adapter(), "models.lora.none",
              "the model has no adapter; add one with lora::add");
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(), error.message());
  State weights;
  auto& own = const_cast<Pretrained&>(net);  // nothing of it is changed
  for (const auto& [name, parameter] : own_weights(own)) weights.set(name, parameter.detach());
  if (const std::string head = tied_weight(own); !head.empty())
    weights.set(kPrefix + head, parts_of(own).body->embedding().detach().clone());
  save_weights(folder / kWeights, weights);
  files::write_file_atomically(folder / kConfig, config_text(net));
}

void load(Pretrained& net, const fs::path& folder) {
  const LoraOptions options = read_config(folder / kConfig);
  const State weights = read_weights(folder);
  add(net, options, Names::kSome);
  std::map<std::string, at::Tensor> parameters = own_weights(net);
  detail::Casts casts;
  const at::NoGradGuard no_grad;
  for (const auto& [name, value] : weights.values()) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) {
      if (name == kPrefix + tied_weight(net)) continue;  // the embedding once more
      fail_weight(net, folder, name);
    }
    const at::Tensor& given = weights.tensor(name);
    LEVIN_CHECK(given.sizes() == found->second.sizes(), "models.lora.weights",
                "{}: {} has sizes {}, wanted {}; the adapter belongs to another model",
                folder.string(), printable(name), c10::str(given.sizes()),
                c10::str(found->second.sizes()));
    casts.note(name, given.scalar_type(), found->second.scalar_type());
    found->second.copy_(given);
    parameters.erase(found);
  }
  casts.tell("models: " + folder.string());
  // A head that the adapter does not have stays the model's own.
  for (const auto& [name, parameter] : parameters) {
    LEVIN_CHECK(name.find(".lora_") == std::string::npos, "models.lora.weights",
                "{} has no weights for {}; the adapter is incomplete, or belongs to another model",
                folder.string(), name);
  }
}

void merge(Pretrained& net) {
  for (const Target& each : layers_of(net)) each.layer->merge();
}

void unmerge(Pretrained& net) {
  for (const Target& each : layers_of(net)) each.layer->unmerge();
}

WithoutAdapter::WithoutAdapter(Pretrained& net) : net_(net) {
  for (auto& [parameter, original] : parts_of(net).lora_originals) {
    LEVIN_CHECK(parameter.sizes() == original.sizes(), "models.lora.weights",
                "a parameter of {} is sharded, so its original value cannot replace it for the "
                "reference; set strategy to ddp, or set FineTuneOptions::reference",
                to_text(parts_of(net).lora_whole));
    original = original.to(parameter.options());
  }
  for (auto& [parameter, original] : parts_of(net).lora_originals) {
    trained_.push_back(parameter.detach().alias());
    parameter.set_data(original);
  }
  for (const Target& each : layers_of(net)) each.layer->set_adapter_enabled(false);
}
WithoutAdapter::~WithoutAdapter() {
  const auto& originals = parts_of(net_).lora_originals;
  for (size_t i = 0; i < trained_.size(); ++i) at::Tensor(originals[i].first).set_data(trained_[i]);
  for (const Target& each : layers_of(net_)) each.layer->set_adapter_enabled(true);
}

}  // namespace levin::lora
