#pragma once
// Tensors as loggers take them: images and histograms, checked and converted. Not for users.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace levin::detail {

/// Pixels [H, W, C], uint8 on the CPU. Floating-point values are multiplied by 255 and cut off, as
/// torch.utils.tensorboard's add_image does. Throws Error "observe.logger.image".
at::Tensor pixels_of(std::string_view name, const at::Tensor& image, std::string_view format);

/// The finite elements of a tensor, [N] of float64 on the CPU; N may be 0. Throws Error
/// "observe.logger.histogram".
at::Tensor elements_of(std::string_view name, const at::Tensor& values);

/// A PNG file of such pixels.
std::string png_of_pixels(const at::Tensor& pixels);

}  // namespace levin::detail
