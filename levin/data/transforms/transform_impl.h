#pragma once
// Checks that the transforms share. Not for users.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "levin/data/dataset.h"

namespace levin::data {

/// The field as images [N, channels, height, width] on the CPU, contiguous. Throws Error
/// "data.transform.image", and "data.batch.field".
at::Tensor images_in(const Batch& batch, const std::string& field, std::string_view transform);

/// Throws Error "data.transform.options" unless the size is {height, width}.
void check_size(const std::vector<int64_t>& size, std::string_view transform);

}  // namespace levin::data
