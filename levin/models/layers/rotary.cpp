#include "levin/models/layers/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/models/check_keys.h"
#include "levin/models/layers/row_arithmetic.h"

namespace levin::models {
namespace {

/// Keys of "rope_parameters" and "rope_scaling".
constexpr std::string_view kRotaryKeys = R"keys(
  read      rope_type type rope_theta partial_rotary_factor factor original_max_position_embeddings
  read      low_freq_factor high_freq_factor
  read      beta_fast beta_slow attention_factor mscale mscale_all_dim truncate
  # Of kinds that are refused by their names.
  harmless  short_factor long_factor alpha
  # Of models of images, whose texts have the same positions on each axis.
  harmless  mrope_section mrope_interleaved
  refused   full_attention sliding_attention
)keys";

/// Returns a CPU tensor with memory, in init_on_meta too, because it is not a weight.
at::Tensor steps(int64_t end, int64_t step) {
  return at::arange(0, end, step, at::TensorOptions(at::kFloat).device(at::kCPU));
}

at::Tensor powers(double theta, int64_t dim) {  // [dim / 2]
  return at::pow(at::Scalar(theta), steps(dim, 2) / static_cast<double>(dim));
}

/// Long waves are stretched by the factor, short ones are not, and those between a little.
at::Tensor llama3(const RotaryOptions& options, const at::Tensor& plain) {
  const auto context = static_cast<double>(options.original_max_position_embeddings);
  const double low = options.low_freq_factor, high = options.high_freq_factor;
  const at::Tensor wave = 2 * std::numbers::pi / plain;
  const at::Tensor stretched = at::where(wave > context / low, plain / options.factor, plain);
  const at::Tensor smooth = (context / wave - low) / (high - low);
  const at::Tensor between = (1 - smooth) * stretched / options.factor + smooth * stretched;
  const at::Tensor is_between =
      (wave < context / high).logical_not() * (wave > context / low).logical_not();
  return at::where(is_between, between, stretched);
}

/// YaRN (Peng et al. 2023), as transformers' _compute_yarn_parameters.
at::Tensor yarn(const RotaryOptions& options, int64_t dim) {
  const auto context = static_cast<double>(options.original_max_position_embeddings);
  const auto dim_of = [&](double rotations) {
    return static_cast<double>(dim) * std::log(context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(options.theta));
  };
  double low = dim_of(options.beta_fast), high = dim_of(options.beta_slow);
  if (options.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor frequency = powers(options.theta, dim);
  const at::Tensor kept = 1 - ((steps(dim / 2, 1) - low) / (high - low)).clamp(0, 1);
  return 1.0 / (options.factor * frequency) * (1 - kept) + 1.0 / frequency * kept;
}

double yarn_scale(const RotaryOptions& options) {
  const auto scale = [&](double by) {
    return options.factor <= 1 ? 1.0 : 0.1 * by * std::log(options.factor) + 1.0;
  };
  if (options.attention_factor) return *options.attention_factor;
  if (options.mscale.value_or(0) != 0 && options.mscale_all_dim.value_or(0) != 0)
    return scale(*options.mscale) / scale(*options.mscale_all_dim);
  return scale(1.0);
}

std::optional<double> number_if(const Config& config, const char* key) {
  return config.has(key) ? std::optional(config.number(key)) : std::nullopt;
}

}  // namespace

RotaryOptions RotaryOptions::from(const Config& config, double theta) {
  const bool is_old = !config.child("rope_scaling").keys().empty();
  return read(config.child(is_old ? "rope_scaling" : "rope_parameters"), config,
              config.number("rope_theta", theta));
}

RotaryOptions RotaryOptions::of_layers(const Config& config, const std::string& type,
                                       double theta) {
  const Config all = config.child("rope_parameters");
  for (const std::string& key : all.keys()) {
    LEVIN_CHECK(key == "full_attention" || key == "sliding_attention", "models.rotary",
                "{} has the key {}, wanted only full_attention and sliding_attention, each with "
                "its own parameters",
                all.origin(), printable(key));
  }
  const Config own = all.child(type);
  Config given = config.child("rope_scaling");
  if (given.keys().empty()) return read(own, config, theta);
  given.fill(own.to_json());
  return read(given, config, theta);
}

RotaryOptions RotaryOptions::read(const Config& given, const Config& config, double theta) {
  static const detail::KnownKeys known({kRotaryKeys});
  check_keys(given, known);
  RotaryOptions options;
  options.kind = given.text("rope_type", given.text("type", "default"));
  options.theta = given.number("rope_theta", theta);
  LEVIN_CHECK(
      given.number("partial_rotary_factor", config.number("partial_rotary_factor", 1.0)) == 1.0,
      "models.rotary", "{} has a partial_rotary_factor other than 1, which levin does not support",
      given.origin());
  if (options.kind == "default") return options;
  const std::vector<std::string> kinds{"default", "linear", "llama3", "yarn"};
  LEVIN_CHECK(std::ranges::count(kinds, options.kind) == 1, "models.rotary",
              "{} has rope_type '{}', wanted one of {}", given.origin(), printable(options.kind),
              to_text(kinds));
  const int64_t longest = config.integer("max_position_embeddings", 2048);
  options.original_max_position_embeddings =
      config.integer("original_max_position_embeddings",
                     given.integer("original_max_position_embeddings", longest));
  if (options.kind == "yarn" && !given.has("factor")) {
    options.factor = static_cast<double>(longest) /
                     static_cast<double>(options.original_max_position_embeddings);
  } else {
    options.factor = given.number("factor");
  }
  if (options.kind == "llama3") {
    options.low_freq_factor = given.number("low_freq_factor");
    options.high_freq_factor = given.number("high_freq_factor");
  }
  // Python's `or`: 0 counts as absent.
  const auto or_else = [&](const char* key, double otherwise) {
    const double value = given.number(key, otherwise);
    return value == 0 ? otherwise : value;
  };
  options.beta_fast = or_else("beta_fast", 32);
  options.beta_slow = or_else("beta_slow", 1);
  options.truncate = given.boolean("truncate", true);
  options.attention_factor = number_if(given, "attention_factor");
  options.mscale = number_if(given, "mscale");
  options.mscale_all_dim = number_if(given, "mscale_all_dim");
  return options;
}

Rotary::Rotary(const RotaryOptions& options, int64_t head_dim) {
  LEVIN_CHECK(head_dim % 2 == 0, "models.rotary", "got head_dim = {}, wanted an even number",
              head_dim);
  const at::NoGradGuard no_grad;
  frequencies_ = 1.0 / powers(options.theta, head_dim);
  if (options.kind == "linear") frequencies_ = frequencies_ / options.factor;
  if (options.kind == "llama3") frequencies_ = llama3(options, frequencies_);
  if (options.kind == "yarn") {
    frequencies_ = yarn(options, head_dim);
    scale_ = yarn_scale(options);
  }
}

std::pair<at::Tensor, at::Tensor> Rotary::angles(const at::Tensor& positions,
                                                 at::ScalarType dtype) {
  if (frequencies_.device() != positions.device())
    frequencies_ = frequencies_.to(positions.device());
  const auto turns = positions.unsqueeze(-1).to(at::kFloat) * frequencies_;
  const auto shaped = [&](const at::Tensor& part) {
    return (scale_ == 1.0 ? part : part * scale_).to(dtype).unsqueeze(2);
  };
  return {shaped(turns.cos()), shaped(turns.sin())};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  if (at::Tensor y = row_rotate(x, cos, sin); y.defined()) return y;
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1);
}

}  // namespace levin::models
