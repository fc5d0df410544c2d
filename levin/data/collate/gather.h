#pragma once
// Gather: rows of a tensor by their indices, into memory that is used again. A data set in memory
// does it for each batch; it is the only copy on the data's way.
//
//   at::Tensor out = output_for(reuse, "image", sizes, at::kFloat);
//   gather_normalized(images, indices, mean, scale, out);

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "levin/data/batch.h"

namespace levin::detail {

/// Throws Error "data.tensors.index" unless every index is in [0, size). Returns whether they are
/// one ascending run i, i + 1, i + 2, ...
bool is_run(std::span<const int64_t> indices, int64_t size);

/// A contiguous CPU tensor to write in: the memory of reuse's field of that name where its dtype is
/// the same, it is large enough and nobody else holds it, else new.
LEVIN_API at::Tensor output_for(const Batch& reuse, std::string_view name, at::IntArrayRef sizes,
                                at::ScalarType dtype);

/// out[i] = source[indices[i]]. Both contiguous on the CPU and of one dtype, source [N, ...], out
/// [indices.size(), ...], every index in [0, N).
void gather_rows(const at::Tensor& source, std::span<const int64_t> indices, const at::Tensor& out);

/// out[i] = (source[indices[i]] - mean) * scale in float, source uint8, out float: the same bits as
/// ATen's sub and mul give.
void gather_normalized(const at::Tensor& source, std::span<const int64_t> indices, float mean,
                       float scale, const at::Tensor& out);

}  // namespace levin::detail
