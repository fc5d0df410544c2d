#include "levin/trainer/callbacks/checkpoint_name.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include "levin/base/check.h"

namespace levin::detail {
namespace {

/// Formats as "{:02d}" or "{:.4f}" would; throws if the format wants another kind of number.
template <class Number>
std::string formatted(const std::string& format, Number value) {
  constexpr std::string_view kOfFractions = "aAeEfFgG";
  const bool is_of_fractions =
      !format.empty() && kOfFractions.find(format.back()) != std::string_view::npos;
  try {
    if (is_of_fractions) {
      return fmt::format(fmt::runtime("{:" + format + "}"), static_cast<double>(value));
    }
    return fmt::format(fmt::runtime("{:" + format + "}"), value);
  } catch (const fmt::format_error& error) {
    LEVIN_FAIL("trainer.checkpoint.options",
               "got the format '{}' in filename for the value {} ({}); wanted one as 02d for a "
               "count or .2f for a metric",
               format, value, error.what());
  }
}

}  // namespace

std::string checkpoint_name(const std::string& pattern, const CheckpointMoment& moment) {
  std::string name = pattern;
  size_t open = 0;
  while ((open = name.find('{', open)) != std::string::npos) {
    const size_t close = name.find('}', open);
    LEVIN_CHECK(close != std::string::npos && close < name.find('{', open + 1),
                "trainer.checkpoint.options", "got filename = '{}', wanted a '}}' for each '{{'",
                pattern);
    const std::string inside = name.substr(open + 1, close - open - 1);
    const size_t colon = inside.find(':');
    const std::string key = inside.substr(0, colon);
    const std::string format = colon == std::string::npos ? "" : inside.substr(colon + 1);
    LEVIN_CHECK(!key.empty(), "trainer.checkpoint.options",
                "got filename = '{}', wanted a name in each {{}}: epoch, step or a metric",
                pattern);
    std::string value = moment.insert_names ? key + "=" : "";
    std::ranges::replace(value, '/', '_');  // Lightning makes folders of such names
    if (key == "epoch" || key == "step") {
      value += formatted(format, key == "epoch" ? moment.epoch : moment.step);
    } else {
      const auto metric = moment.metrics.find(key);
      value += formatted(format.empty() ? ".4f" : format,
                         metric == moment.metrics.end() ? std::numeric_limits<double>::quiet_NaN()
                                                        : metric->second);
    }
    name.replace(open, close - open + 1, value);
    open += value.size();
  }
  return name;
}

}  // namespace levin::detail
