#pragma once
// activation_checkpoint: gradient checkpointing. Activations of a function are not kept but
// recomputed in backward, which saves memory for time. It is called in a module's forward, around a
// block.
//
//   x = levin::activation_checkpoint(
//       [this](const at::Tensor& in) { return block->forward(in); }, x);

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin {

namespace detail {

using CheckpointedFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

LEVIN_API std::vector<at::Tensor> activation_checkpoint(CheckpointedFunction function,
                                                        const std::vector<at::Tensor>& inputs);

inline std::vector<at::Tensor> to_list(at::Tensor one) { return {std::move(one)}; }
inline std::vector<at::Tensor> to_list(std::vector<at::Tensor> list) { return list; }
template <class... Tensors>
std::vector<at::Tensor> to_list(const std::tuple<Tensors...>& tuple) {
  return std::apply([](const auto&... each) { return std::vector<at::Tensor>{each...}; }, tuple);
}

template <class Result>
Result from_list(std::vector<at::Tensor> list) {
  if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
    return list;
  } else if constexpr (std::is_same_v<Result, at::Tensor>) {
    return std::move(list.front());
  } else {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return Result(std::move(list[i])...);
    }(std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

}  // namespace detail

/// Returns function(inputs...) without keeping its activations. Inputs are tensors, or one vector
/// of tensors; the result is a tensor, a vector or a tuple of tensors. Backward calls the function
/// again with the same random numbers and under the same autocast, so gradients are bit-identical.
/// The function must compute the same from the same inputs, and objects that it captures by
/// reference must live until backward. Captured tensors, such as parameters, get their gradients as
/// usual. Running statistics (batch norm) are updated by both calls. With compile = "replay", a
/// step that contains it is recorded if the function draws no random numbers; otherwise the step
/// runs eagerly.
///
/// Throws Error "module.checkpoint.random" if the function draws random numbers on an XLA device,
/// "module.checkpoint.differs" in backward if the second call returned other outputs, and
/// "module.checkpoint.twice" if backward itself is to be differentiated. Follows
/// torch.utils.checkpoint.checkpoint(use_reentrant=False).
template <class Function, class... Inputs>
auto activation_checkpoint(Function function, const Inputs&... inputs) {
  using Result = std::invoke_result_t<Function&, const Inputs&...>;
  constexpr bool takes_list = (std::is_same_v<Inputs, std::vector<at::Tensor>> && ...);
  static_assert(sizeof...(Inputs) > 0 && (!takes_list || sizeof...(Inputs) == 1),
                "activation_checkpoint takes tensors, or one vector of tensors");
  auto body = [function = std::move(function)](const std::vector<at::Tensor>& given) mutable {
    if constexpr (takes_list) {
      return detail::to_list(function(given));
    } else {
      return [&]<size_t... i>(std::index_sequence<i...>) {
        return detail::to_list(function(given[i]...));
      }(std::index_sequence_for<Inputs...>());
    }
  };
  if constexpr (takes_list) {
    return detail::from_list<Result>(detail::activation_checkpoint(std::move(body), inputs...));
  } else {
    return detail::from_list<Result>(detail::activation_checkpoint(std::move(body), {inputs...}));
  }
}

}  // namespace levin
