#pragma once
// explain_outside says what an error of LibTorch means between the steps of a sharded model, whose parameters
// are rows there.

#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "levin/base/error.h"
#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

inline bool is_of_sizes(std::string_view what) {
  constexpr std::array<std::string_view, 4> kWords = {"size", "shape", "dimension", "numel"};
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return what.find(word) != std::string_view::npos; });
}

/// what: LibTorch's text. unit: any of the model, for an example. Returns what() of Error
/// "strategy.fsdp.outside" for an error of sizes, and of "strategy.fsdp.optimizer" for torch::optim's
/// zero_grad on gradients that are views; "" for other errors.
inline std::string explain_outside(std::string_view what, const Unit& unit) {
  if (what.starts_with("Can't detach views in-place")) {
    return Error("strategy.fsdp.optimizer",
                 "zero_grad of an optimizer of torch::optim that was not prepared got "
                 "gradients of a sharded model; give the optimizer to prepare and call "
                 "step and zero_grad of what prepare returns")
        .what();
  }
  if (!is_of_sizes(what)) return "";
  const Leaf& leaf = unit.leaves().front();
  return Error("strategy.fsdp.outside",
               fmt::format(
                   "outside of a forward pass of the prepared model each rank has some rows of "
                   "a parameter or none ({} is {} here and {} as a whole); if the module itself "
                   "was called (net->forward), call the prepared model's forward",
                   leaf.name, c10::str(leaf.rows.sizes()), c10::str(leaf.sizes)))
      .what();
}

}  // namespace levin::fsdp
