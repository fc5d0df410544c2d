#pragma once
// How the sizes of a convolution's or a pool's result come from those of its input.
// Not for users.

#include <vector>

#include "levin/interchange/export/record/recording.h"
#include "levin/interchange/export/sizes/size_formula.h"

namespace levin::interchange {

/// Returns the sizes that dim `dim` of the result may have; empty for other operators. input: the formulas of the sizes of
/// the operator's first tensor; weight: the sizes of its weight, where it has one.
std::vector<SizeFormula> layer_sizes(const RecordedCall& call,
                                     const std::vector<SizeFormula>& input,
                                     const std::vector<int64_t>& weight, size_t num_dims,
                                     size_t dim);

}  // namespace levin::interchange
