#include "levin/models/heads/sentence.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"
#include "levin/files/read_file.h"
#include "levin/models/check_keys.h"
#include "levin/models/pretrained.h"

namespace levin::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Mode {
  const char* key;   // its key in 1_Pooling/config.json
  const char* name;  // its name in sentence-transformers from version 5 on
};
constexpr Mode kModes[] = {{"pooling_mode_cls_token", "cls"},
                           {"pooling_mode_max_tokens", "max"},
                           {"pooling_mode_mean_tokens", "mean"},
                           {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
                           {"pooling_mode_weightedmean_tokens", "weightedmean"},
                           {"pooling_mode_lasttoken", "lasttoken"}};

/// Keys of config.json of a Pooling module.
constexpr std::string_view kPoolingKeys = R"keys(
  read      pooling_mode include_prompt
  read      pooling_mode_cls_token pooling_mode_max_tokens pooling_mode_mean_tokens
  read      pooling_mode_mean_sqrt_len_tokens pooling_mode_weightedmean_tokens
  read      pooling_mode_lasttoken
  harmless  embedding_dimension word_embedding_dimension
)keys";
constexpr std::string_view kNormalizeKeys = R"keys(
  only      module_input_name = "sentence_embedding"
  only      module_output_name = "sentence_embedding"
)keys";

std::vector<std::string> read_pooling(const Config& config) {
  std::vector<std::string> pooling = config.one_or_more_texts("pooling_mode");
  for (const std::string& name : pooling) {
    const bool is_known =
        std::ranges::any_of(kModes, [&](const Mode& mode) { return name == mode.name; });
    LEVIN_CHECK(is_known, "models.sentence",
                "{}: got pooling_mode '{}', which levin does not support", config.origin(),
                printable(name));
  }
  if (!pooling.empty()) return pooling;
  for (const Mode& mode : kModes) {
    if (config.boolean(mode.key, false)) pooling.emplace_back(mode.name);
  }
  LEVIN_CHECK(!pooling.empty(), "models.sentence", "{} sets no pooling mode", config.origin());
  return pooling;
}

at::Tensor pooled_by(const std::string& mode, const at::Tensor& hidden, const at::Tensor& mask) {
  const auto weights = mask.unsqueeze(-1);  // float32 [B, T, 1]
  if (mode == "cls") {
    const auto first = mask.argmax(1).view({-1, 1, 1}).expand({-1, 1, hidden.size(2)});
    return hidden.gather(1, first).squeeze(1);
  }
  if (mode == "max") return std::get<0>(hidden.masked_fill(weights == 0, -1e9).max(1));
  if (mode == "lasttoken") {
    const auto place = at::arange(mask.size(1), mask.options());
    const auto last = (place * mask).argmax(1).view({-1, 1, 1}).expand({-1, 1, hidden.size(2)});
    return hidden.gather(1, last).squeeze(1);
  }
  if (mode == "weightedmean") {
    const auto ramp = weights * at::arange(1, mask.size(1) + 1, mask.options()).view({1, -1, 1});
    return (hidden * ramp).sum(1) / ramp.sum(1).clamp_min(1e-9);
  }
  const auto sum = (hidden * weights).sum(1), count = weights.sum(1).clamp_min(1e-9);
  return sum / (mode == "mean" ? count : count.sqrt());
}

}  // namespace

SentencePlan SentencePlan::from_folder(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  std::error_code error;
  SentencePlan plan;
  if (!fs::exists(file, error)) return plan;
  const std::string text = files::read_file(file);
  const json modules = json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  LEVIN_CHECK(modules.is_array(), "models.sentence", "{} is not a list of modules", file.string());
  for (const json& module : modules) {
    const auto field = [&](const char* key) {
      return module.is_object() && module.contains(key) && module[key].is_string()
                 ? module[key].get<std::string>()
                 : std::string();
    };
    const std::string type = field("type");
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") continue;
    const fs::path path = field("path");
    LEVIN_CHECK(!path.is_absolute() && path.string().find("..") == std::string::npos,
                "models.sentence", "{} names a path outside of its folder: '{}'", file.string(),
                printable(path.string()));
    if (name == "Pooling") {
      const Config config = Config::from_folder(folder / path);
      check_keys(config, detail::KnownKeys({kPoolingKeys}));
      plan.pooling = read_pooling(config);
      plan.include_prompt = config.boolean("include_prompt", true);
      plan.folders.push_back(path.string());
    } else if (name == "Normalize") {
      plan.normalize = true;
      plan.folders.push_back(path.string());
      if (!path.empty() && fs::exists(folder / path / "config.json", error))
        check_keys(Config::from_folder(folder / path), detail::KnownKeys({kNormalizeKeys}));
    } else {
      LEVIN_FAIL("models.sentence",
                 "{} has a module of type '{}'; levin supports Transformer, Pooling and Normalize",
                 file.string(), printable(type));
    }
  }
  return plan;
}

at::Tensor sentence_vectors(const SentencePlan& plan, const at::Tensor& hidden,
                            const Inputs& inputs) {
  const auto wide = hidden.to(at::kFloat);
  const auto mask = inputs.attention_mask.defined() ? inputs.attention_mask.to(at::kFloat)
                                                    : at::ones_like(inputs.input_ids, at::kFloat);
  std::vector<at::Tensor> parts;
  for (const std::string& mode : plan.pooling) parts.push_back(pooled_by(mode, wide, mask));
  const auto vectors = parts.size() == 1 ? parts.front() : at::cat(parts, -1);
  if (!plan.normalize) return vectors;
  return vectors / vectors.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12);
}

}  // namespace levin::models
