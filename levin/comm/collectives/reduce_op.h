#pragma once
// ReduceOp: how a collective puts the ranks' values together.

namespace levin {

enum class ReduceOp { kSum, kMean, kMin, kMax, kProduct };

}  // namespace levin
