#pragma once
// The .npy format: a header, which is a dict of Python, and the elements. Not for users.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace levin::data {

/// Returns the array in these bytes as a view that keeps `owner`, or as a copy if they are not
/// aligned. `name` stands for them in messages. Throws Error "data.npy".
at::Tensor parse_npy(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                     const std::string& name);

}  // namespace levin::data
