#pragma once
// Stack: samples put together to a batch, field by field. A data set of single samples and a stream
// do it if no collate is given.
//
//   Batch batch = stack_samples(samples, numbers, pool.take());

#include <cstdint>
#include <span>
#include <vector>

#include "levin/data/batch.h"

namespace levin::detail {

/// Each field [samples.size(), ...] (torch::stack), in the memory of reuse where it fits (see
/// output_for). Throws Error "data.samples.stack" for samples that differ in names, shape or dtype,
/// naming them by numbers, which are as many as the samples.
Batch stack_samples(const std::vector<data::Sample>& samples, std::span<const int64_t> numbers,
                    const Batch& reuse);

}  // namespace levin::detail
