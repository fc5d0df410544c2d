#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "levin/base/check.h"
#include "levin/data/transforms/draws_impl.h"
#include "levin/data/transforms/transform_impl.h"

namespace levin::data {
namespace {

/// One image as float, its three channels one after another, and how its dtype rounds: each
/// operation of torchvision gives an image of that dtype.
struct JitteredImage {
  std::vector<float> values;
  int64_t num_pixels;
  float bound;  ///< 255 for uint8, 1 for float32

  float rounded(float value) const { return bound == 1 ? value : std::trunc(value); }
  float* channel(int64_t number) { return values.data() + number * num_pixels; }
  float gray(int64_t pixel) {
    return rounded(0.2989F * channel(0)[pixel] + 0.587F * channel(1)[pixel] +
                   0.114F * channel(2)[pixel]);
  }
  float blended(float value, float other, float factor) const {
    return rounded(std::clamp(factor * value + (1 - factor) * other, 0.0F, bound));
  }
};

void change_brightness(JitteredImage& image, float factor) {
  for (float& value : image.values) value = image.blended(value, 0, factor);
}

void change_contrast(JitteredImage& image, float factor) {
  double sum = 0;
  for (int64_t pixel = 0; pixel < image.num_pixels; ++pixel) sum += image.gray(pixel);
  const auto mean = static_cast<float>(sum / static_cast<double>(image.num_pixels));
  for (float& value : image.values) value = image.blended(value, mean, factor);
}

void change_saturation(JitteredImage& image, float factor) {
  for (int64_t pixel = 0; pixel < image.num_pixels; ++pixel) {
    const float gray = image.gray(pixel);
    for (int64_t i = 0; i < 3; ++i) {
      float& value = image.channel(i)[pixel];
      value = image.blended(value, gray, factor);
    }
  }
}

/// RGB to HSV, the hue turned, and back: _rgb2hsv and _hsv2rgb of torchvision.
std::array<float, 3> with_hue(float r, float g, float b, float turn) {
  const float high = std::max({r, g, b}), low = std::min({r, g, b});
  const float range = high - low;
  const float saturation = range == 0 ? 0 : range / high;
  const float divisor = range == 0 ? 1 : range;
  const float rc = (high - r) / divisor, gc = (high - g) / divisor, bc = (high - b) / divisor;
  float hue = 0;
  if (high == r) {
    hue = bc - gc;
  } else if (high == g) {
    hue = 2 + rc - bc;
  } else {
    hue = 4 + gc - rc;
  }
  hue = std::fmod(hue / 6 + 1, 1.0F) + turn;
  hue -= std::floor(hue);
  const float sector = std::floor(hue * 6);
  const float f = hue * 6 - sector;
  const auto bounded = [](float value) { return std::clamp(value, 0.0F, 1.0F); };
  const float p = bounded(high * (1 - saturation)), q = bounded(high * (1 - saturation * f)),
              t = bounded(high * (1 - saturation * (1 - f)));
  switch (static_cast<int>(sector) % 6) {
    case 0:
      return {high, t, p};
    case 1:
      return {q, high, p};
    case 2:
      return {p, high, t};
    case 3:
      return {p, q, high};
    case 4:
      return {t, p, high};
    default:
      return {high, p, q};
  }
}

void change_hue(JitteredImage& image, float turn) {
  // convert_image_dtype of torchvision, which spreads [0, 1] evenly over 256 values.
  const float spread = image.bound == 1 ? 1 : 255 + 1 - 1e-3F;
  for (int64_t pixel = 0; pixel < image.num_pixels; ++pixel) {
    const auto turned =
        with_hue(image.channel(0)[pixel] / image.bound, image.channel(1)[pixel] / image.bound,
                 image.channel(2)[pixel] / image.bound, turn);
    for (int64_t i = 0; i < 3; ++i) {
      image.channel(i)[pixel] = image.rounded(turned[static_cast<size_t>(i)] * spread);
    }
  }
}

struct JitterStep {
  void (*change)(JitteredImage& image, float factor);
  double low;
  double high;
};

JitterStep jitter_step(const char* name, void (*change)(JitteredImage& image, float factor),
                       const std::vector<double>& given, bool is_hue) {
  const double centre = is_hue ? 0 : 1;
  const double least = is_hue ? -0.5 : 0, most = is_hue ? 0.5 : 1e6;
  JitterStep step = {change, centre, centre};
  if (given.size() == 1) {
    step.low = is_hue ? -given[0] : std::max(0.0, 1 - given[0]);
    step.high = centre + given[0];
  } else if (given.size() == 2) {
    step.low = given[0];
    step.high = given[1];
  }
  LEVIN_CHECK(given.size() <= 2 && step.low >= least && step.low <= step.high && step.high <= most,
              "data.transform.options",
              "got {} = {} for color_jitter, wanted {{}}, {{strength}} or {{min, max}} within [{}, "
              "{}]",
              name, c10::str(c10::ArrayRef<double>(given)), least, most);
  return step;
}

class ColorJitter {
 public:
  explicit ColorJitter(const ColorJitterOptions& options)
      : field_(options.field),
        steps_{jitter_step("brightness", change_brightness, options.brightness, false),
               jitter_step("contrast", change_contrast, options.contrast, false),
               jitter_step("saturation", change_saturation, options.saturation, false),
               jitter_step("hue", change_hue, options.hue, true)} {}

  Batch operator()(Batch batch, std::span<const uint64_t> seeds) const {
    const at::Tensor images = images_in(batch, field_, "color_jitter");
    const bool is_byte = images.scalar_type() == at::kByte;
    LEVIN_CHECK(images.size(1) == 3 && (is_byte || images.scalar_type() == at::kFloat) &&
                    images.size(0) == std::ssize(seeds),
                "data.transform.image",
                "'{}' is {} {}, wanted uint8 or float32 images of 3 channels and a seed for each, "
                "for color_jitter",
                field_, c10::toString(images.scalar_type()), c10::str(images.sizes()));
    at::Tensor out = at::empty_like(images);
    const int64_t num_pixels = images.size(2) * images.size(3);
    JitteredImage image = {std::vector<float>(static_cast<size_t>(3 * num_pixels)), num_pixels,
                           is_byte ? 255.0F : 1.0F};
    for (int64_t i = 0; i < images.size(0); ++i) {
      const auto copy = [&](const auto* from, auto* to) {
        std::copy_n(from + i * 3 * num_pixels, 3 * num_pixels, image.values.begin());
        jitter(image, TransformDraws(seeds[static_cast<size_t>(i)]));
        using Value = std::remove_pointer_t<decltype(to)>;
        std::ranges::transform(image.values, to + i * 3 * num_pixels,
                               [](float value) { return static_cast<Value>(value); });
      };
      if (is_byte) {
        copy(images.const_data_ptr<uint8_t>(), out.mutable_data_ptr<uint8_t>());
      } else {
        copy(images.const_data_ptr<float>(), out.mutable_data_ptr<float>());
      }
    }
    batch.set(field_, out);
    return batch;
  }

 private:
  void jitter(JitteredImage& image, TransformDraws draws) const {
    std::array<size_t, 4> order = {0, 1, 2, 3};
    for (int64_t i = 3; i > 0; --i) {
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(draws.below(i + 1))]);
    }
    for (const size_t number : order) {
      const JitterStep& step = steps_[number];
      const double factor = draws.uniform(step.low, step.high);
      const bool is_neutral = step.low == step.high && step.low == (number == 3 ? 0 : 1);
      if (!is_neutral) step.change(image, static_cast<float>(factor));
    }
  }

  std::string field_;
  std::array<JitterStep, 4> steps_;
};

}  // namespace

BatchTransform color_jitter(ColorJitterOptions options) { return ColorJitter(options); }

}  // namespace levin::data
