// The output of `levin plan --tpu`.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "tools/graph/node_text.h"
#include "tools/xla/tpu_advice.h"

namespace levin::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRowsOfTile = 8;

double percent(double part, double whole) { return whole == 0.0 ? 0.0 : 100.0 * part / whole; }

/// A loss as a part of all that is done, tiles' filling included.
double loss_percent(double needed, double padded) { return percent(padded - needed, padded); }

std::string batch_text(const TpuAdvice& advice) {
  const auto first = std::ranges::find_if(
      advice.inputs, [](const StepInput& input) { return input.batch_size > 0; });
  if (first == advice.inputs.end()) return "batch: the step has no input with dimensions\n";
  const int64_t size = first->batch_size, full = next_full(size, kRowsOfTile);
  std::string text = fmt::format("batch: {} is {} on each core, {} samples over all cores\n",
                                 first->name, first->type, size * advice.slice.num_cores);
  if (size == full) return text + "  a multiple of 8, which fills a tile's rows\n";
  return text + fmt::format(
                    "  {} is not a multiple of 8: where the rows of a tile are the batch alone, "
                    "{:.0f} % of them are padding; set the batch size to {}\n",
                    size, loss_percent(static_cast<double>(size), static_cast<double>(full)), full);
}

std::string type_text(const TpuAdvice& advice) {
  std::string text;
  if (advice.float32_flops > 0.0) {
    text += fmt::format(
        "dtypes: {:.0f} % of the matrix products are not in bfloat16, the dtype of the matrix "
        "unit; set "
        "--precision bf16-mixed or bf16-true\n",
        percent(advice.float32_flops, advice.product_flops));
  } else if (advice.product_flops > 0.0) {
    text += "dtypes: all matrix products are in bfloat16, the dtype of the matrix unit\n";
  }
  if (advice.has_float64) {
    text += "dtypes: some tensors are float64, which TPUs only emulate; use float32\n";
  }
  return text;
}

std::string owner_text(const PaddedProduct& one) {
  const std::string module = one.module.empty() ? "the net" : one.module;
  return one.count == 1 ? module : fmt::format("{} and {} more", module, one.count - 1);
}

std::string products_text(const TpuAdvice& advice) {
  std::string text =
      fmt::format("matrix products: {}, or {} padded to tiles of 8 x 128: {:.1f} % is wasted\n",
                  in_units(advice.product_flops, "FLOP"), in_units(advice.padded_flops, "FLOP"),
                  loss_percent(advice.product_flops, advice.padded_flops));
  if (advice.products.empty()) return text;
  text += fmt::format("  {:>7}{:>9}  {:<22}{:<26}{:<26}{}\n", "loss", "of all", "operator", "sizes",
                      "padded to", "module");
  for (const PaddedProduct& one : advice.products) {
    text += fmt::format("  {:>5.1f} %{:>7.2f} %  {:<22}{:<26}{:<26}{}\n",
                        loss_percent(one.flops, one.padded),
                        percent(one.padded - one.flops, advice.padded_flops), one.operation,
                        one.sizes.text(), one.sizes.padded().text(), owner_text(one));
  }
  return text;
}

double padded_peak(const TpuAdvice& advice) {
  return static_cast<double>(advice.plan.peak_bytes + advice.padded_state_bytes -
                             advice.state_bytes);
}

std::string memory_text(const TpuAdvice& advice) {
  const double peak = padded_peak(advice), room = advice.slice.tpu->hbm_bytes;
  std::string text = fmt::format(
      "memory of a core: {} of {} at the peak, {:.1f} %; {}\n"
      "  parameters, buffers and optimizer state are {} of it, or {} padded to tiles\n",
      in_units(peak, "B"), in_units(room, "B"), percent(peak, room),
      peak <= room ? "fits as recorded" : "does not fit as recorded",
      in_units(static_cast<double>(advice.state_bytes), "B"),
      in_units(static_cast<double>(advice.padded_state_bytes), "B"));
  if (peak > room) {
    text += "  smaller batches, bfloat16 and activation checkpointing need less\n";
  }
  return text + fmt::format("  `levin xla check --topology {}` compiles the step and so knows\n",
                            advice.slice.topology.find(':') == std::string::npos
                                ? advice.slice.topology + ":2x2"
                                : advice.slice.topology);
}

Json json_of(const PaddedProduct& one) {
  const MatrixProduct filled = one.sizes.padded();
  return {{"operator", one.operation},
          {"module", one.module},
          {"count", one.count},
          {"sizes", {one.sizes.count, one.sizes.rows, one.sizes.inner, one.sizes.columns}},
          {"filled", {filled.count, filled.rows, filled.inner, filled.columns}},
          {"flops", one.flops},
          {"filled_flops", one.padded}};
}

}  // namespace

std::string to_text(const TpuAdvice& advice) {
  return fmt::format("a step of {} parameters on {}: {} core{} at {} and {}\n\n{}{}\n{}\n{}",
                     in_units(static_cast<double>(advice.plan.num_parameters), ""),
                     advice.slice.topology, advice.slice.num_cores,
                     advice.slice.num_cores == 1 ? "" : "s, each",
                     in_units(advice.slice.tpu->flops_per_s, "FLOP/s"),
                     in_units(advice.slice.tpu->bytes_per_s, "B/s"), batch_text(advice),
                     type_text(advice), products_text(advice), memory_text(advice));
}

std::string to_json(const TpuAdvice& advice) {
  Json json = {{"topology", advice.slice.topology},
               {"cores", advice.slice.num_cores},
               {"parameters", advice.plan.num_parameters},
               {"hbm_bytes", advice.slice.tpu->hbm_bytes},
               {"peak_bytes", padded_peak(advice)},
               {"state_bytes", advice.state_bytes},
               {"filled_state_bytes", advice.padded_state_bytes},
               {"product_flops", advice.product_flops},
               {"filled_product_flops", advice.padded_flops},
               {"float32_flops", advice.float32_flops},
               {"has_float64", advice.has_float64},
               {"inputs", Json::array()},
               {"products", Json::array()}};
  for (const StepInput& input : advice.inputs) {
    json["inputs"].push_back(
        {{"name", input.name}, {"type", input.type}, {"batch_size", input.batch_size}});
  }
  for (const PaddedProduct& one : advice.products) json["products"].push_back(json_of(one));
  return json.dump(2) + "\n";
}

}  // namespace levin::tools
