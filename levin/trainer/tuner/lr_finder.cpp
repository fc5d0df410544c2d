// The result of a search for a learning rate.

#include <ATen/ops/argmin.h>
#include <ATen/ops/gradient.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/atomic.h"
#include "levin/trainer/trainer.h"
#include "levin/trainer/tuner/curve_svg.h"

namespace levin {
namespace {

/// Returns the index of the step at which the loss falls most steeply.
std::optional<size_t> steepest(const LrFinder& found, int64_t skip_begin, int64_t skip_end) {
  LEVIN_CHECK(skip_begin >= 0 && skip_end >= 0, "trainer.lr_find",
              "got skip_begin = {} and skip_end = {}, wanted at least 0", skip_begin, skip_end);
  std::vector<float> losses, rates;  // float32, as Lightning's torch.tensor
  std::vector<size_t> steps;
  const auto end = static_cast<int64_t>(found.losses.size()) - skip_end;
  for (int64_t i = skip_begin; i < end; ++i) {
    const auto step = static_cast<size_t>(i);
    const auto loss = static_cast<float>(found.losses[step]);
    if (!std::isfinite(loss)) continue;
    losses.push_back(loss);
    rates.push_back(static_cast<float>(found.rates[step]));
    steps.push_back(step);
  }
  if (losses.size() < 2) return std::nullopt;
  const std::vector<at::Tensor> spacing = {at::tensor(rates)};
  const at::Tensor slope = at::gradient(at::tensor(losses), spacing)[0];
  return steps[static_cast<size_t>(slope.argmin().item<int64_t>())];
}

}  // namespace

std::optional<double> LrFinder::suggestion(int64_t skip_begin, int64_t skip_end) const {
  const std::optional<size_t> step = steepest(*this, skip_begin, skip_end);
  return step ? std::optional(rates[*step]) : std::nullopt;
}

void LrFinder::plot(const std::filesystem::path& file, bool suggest) const {
  const std::string ending = file.extension().string();
  LEVIN_CHECK(ending == ".svg" || ending == ".csv", "trainer.lr_find",
              "got the file '{}', wanted one that ends in .svg or .csv", file.string());
  std::string text = "lr,loss\n";
  for (size_t i = 0; i < rates.size(); ++i) {
    text += to_text(rates[i]) + "," + to_text(losses[i]) + "\n";
  }
  if (ending == ".svg") {
    const std::optional<size_t> best = suggest ? steepest(*this, 10, 1) : std::nullopt;
    text =
        detail::svg_of({.x = rates,
                        .y = losses,
                        .log_x = mode == "exponential",
                        .title = "Learning rate finder",
                        .x_label = "learning rate",
                        .y_label = "loss (smoothed)",
                        .marked = best,
                        .mark_label = best ? fmt::format("suggestion: {:.3g}", rates[*best]) : ""});
  }
  files::write_file_atomically(file, text);
}

}  // namespace levin
