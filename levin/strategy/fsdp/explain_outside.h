#pragma once
// explain_outside says what an error of LibTorch means between the steps of a sharded model, whose parameters
// are rows there.

#include <string>
#include <string_view>

#include "levin/strategy/fsdp/unit.h"

namespace levin::fsdp {

/// what: LibTorch's text. unit: any of the model, for an example. Returns what() of Error
/// "strategy.fsdp.outside" for an error of sizes, and of "strategy.fsdp.optimizer" for torch::optim's
/// zero_grad on gradients that are views; "" for other errors.
std::string explain_outside(std::string_view what, const Unit& unit);

}  // namespace levin::fsdp
