#include "levin/observe/loggers/pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <span>

#include "levin/base/check.h"
#include "levin/files/writing/png.h"

namespace levin::detail {

at::Tensor pixels_of(std::string_view name, const at::Tensor& image, std::string_view format) {
  LEVIN_CHECK(format == "CHW" || format == "HWC" || format == "HW", "observe.logger.image",
              "'{}' got the format '{}', wanted CHW, HWC or HW", name, format);
  LEVIN_CHECK(image.defined(), "observe.logger.image",
              "'{}' got an undefined tensor, wanted an image", name);
  const at::NoGradGuard no_grad;
  at::Tensor pixels = image.detach();
  const int64_t dims = format == "HW" ? 2 : 3;
  if (pixels.dim() == dims) {
    if (format == "HW") pixels = pixels.unsqueeze(-1);
    if (format == "CHW") pixels = pixels.permute({1, 2, 0});
  }
  const bool is_image = image.dim() == dims && pixels.numel() > 0 &&
                        (pixels.size(2) == 1 || pixels.size(2) == 3 || pixels.size(2) == 4);
  LEVIN_CHECK(is_image, "observe.logger.image",
              "'{}' got the shape [{}] as {}, wanted at least one pixel and 1, 3 or 4 channels; "
              "name another format, or log a batch image by image",
              name, fmt::join(image.sizes(), ", "), format);
  const bool is_float = at::isFloatingType(pixels.scalar_type());
  LEVIN_CHECK(is_float || pixels.scalar_type() == at::kByte, "observe.logger.image",
              "'{}' got {}, wanted uint8 from 0 to 255 or floating-point from 0 to 1", name,
              c10::toString(pixels.scalar_type()));
  pixels = pixels.cpu();
  if (is_float) pixels = (pixels.to(at::kFloat) * 255).nan_to_num(0).clamp(0, 255).to(at::kByte);
  return pixels.contiguous();
}

at::Tensor elements_of(std::string_view name, const at::Tensor& values) {
  const bool is_histogram = values.defined() && values.numel() > 0 && !values.is_complex();
  LEVIN_CHECK(is_histogram, "observe.logger.histogram",
              "'{}' got {}, wanted a real tensor with at least one element", name,
              !values.defined()     ? "an undefined tensor"
              : values.is_complex() ? "a complex tensor"
                                    : "a tensor without elements");
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().cpu().to(at::kDouble).reshape({-1});
  return flat.index({flat.isfinite()}).contiguous();
}

std::string png_of_pixels(const at::Tensor& pixels) {
  return files::png_of({pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())},
                       {pixels.size(0), pixels.size(1), pixels.size(2)});
}

}  // namespace levin::detail
