#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/tools/tools_impl.h"
#include "levin/data/transforms/draws_impl.h"
#include "levin/data/transforms/transform_impl.h"

namespace levin::data {
namespace {

constexpr uint64_t kTransformStream = 0x7472616e73;  // "trans"

class TransformedDataset final : public Dataset {
 public:
  TransformedDataset(DatasetPtr dataset, std::vector<BatchTransform> transforms)
      : dataset_(detail::checked_dataset(std::move(dataset))), transforms_(std::move(transforms)) {
    for (size_t i = 0; i < transforms_.size(); ++i) {
      LEVIN_CHECK(transforms_[i] != nullptr, "data.transform.options",
                  "transform {} of the list is not set; give a function or leave it out", i);
    }
  }

  int64_t size() const override { return dataset_->size(); }
  bool in_memory() const override { return dataset_->in_memory(); }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }

  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override {
    Batch batch = dataset_->draw(indices, context, std::move(reuse));
    const uint64_t epoch_seed = derive_seed(context.seed, static_cast<uint64_t>(context.epoch));
    std::vector<uint64_t> seeds(indices.size());
    for (size_t number = 0; number < transforms_.size(); ++number) {
      for (size_t i = 0; i < indices.size(); ++i) {
        seeds[i] =
            derive_seed(epoch_seed, kTransformStream + number, static_cast<uint64_t>(indices[i]));
      }
      batch = transforms_[number](std::move(batch), seeds);
    }
    return batch;
  }

 private:
  DatasetPtr dataset_;
  std::vector<BatchTransform> transforms_;
};

void check_samples(const at::Tensor& images, std::span<const uint64_t> seeds) {
  LEVIN_CHECK(images.size(0) == std::ssize(seeds), "data.transform.image",
              "got {} images and {} seeds, wanted a seed for each image", images.size(0),
              seeds.size());
}

class RandomCrop {
 public:
  explicit RandomCrop(RandomCropOptions options) : options_(std::move(options)) {
    check_size(options_.size, "random_crop");
    LEVIN_CHECK(options_.padding >= 0 && options_.padding <= int64_t{1} << 24,
                "data.transform.options", "got padding = {} for random_crop, wanted 0 or more",
                options_.padding);
  }

  Batch operator()(Batch batch, std::span<const uint64_t> seeds) const {
    at::Tensor images = images_in(batch, options_.field, "random_crop");
    check_samples(images, seeds);
    if (options_.padding > 0) {
      const int64_t edge = options_.padding;
      images = at::constant_pad_nd(images, {edge, edge, edge, edge}, options_.fill);
    }
    const int64_t height = options_.size[0], width = options_.size[1];
    LEVIN_CHECK(images.size(2) >= height && images.size(3) >= width, "data.transform.image",
                "'{}' has images of {} x {} pixels with padding, which random_crop cannot cut to "
                "{} x {}; give a smaller size or more padding",
                options_.field, images.size(2), images.size(3), height, width);
    at::Tensor out = at::empty({images.size(0), images.size(1), height, width}, images.options());
    for (int64_t i = 0; i < images.size(0); ++i) {
      TransformDraws draws(seeds[static_cast<size_t>(i)]);
      const int64_t top = draws.below(images.size(2) - height + 1);
      const int64_t left = draws.below(images.size(3) - width + 1);
      out[i].copy_(images[i].narrow(1, top, height).narrow(2, left, width));
    }
    batch.set(options_.field, out);
    return batch;
  }

 private:
  RandomCropOptions options_;
};

class RandomFlip {
 public:
  explicit RandomFlip(RandomFlipOptions options) : options_(std::move(options)) {
    LEVIN_CHECK(options_.p >= 0 && options_.p <= 1, "data.transform.options",
                "got p = {} for random_horizontal_flip, wanted 0 to 1", options_.p);
  }

  Batch operator()(Batch batch, std::span<const uint64_t> seeds) const {
    const at::Tensor images = images_in(batch, options_.field, "random_horizontal_flip");
    check_samples(images, seeds);
    at::Tensor out = at::empty_like(images);
    for (int64_t i = 0; i < images.size(0); ++i) {
      const bool flips = TransformDraws(seeds[static_cast<size_t>(i)]).uniform() < options_.p;
      out[i].copy_(flips ? images[i].flip({2}) : images[i]);
    }
    batch.set(options_.field, out);
    return batch;
  }

 private:
  RandomFlipOptions options_;
};

class NormalizeImages {
 public:
  explicit NormalizeImages(NormalizeOptions options) : options_(std::move(options)) {
    const auto& [mean, deviation, field] = options_;
    const bool valid = !mean.empty() && mean.size() == deviation.size() &&
                       std::ranges::all_of(deviation, [](double each) { return each > 0; });
    LEVIN_CHECK(valid, "data.transform.options",
                "got {} means and {} deviations for normalize, wanted as many of both and "
                "deviations above 0",
                mean.size(), deviation.size());
  }

  Batch operator()(Batch batch, std::span<const uint64_t>) const {
    const at::Tensor images = images_in(batch, options_.field, "normalize");
    const auto channels = static_cast<int64_t>(options_.mean.size());
    LEVIN_CHECK(channels == 1 || channels == images.size(1), "data.transform.image",
                "'{}' has {} channels, but normalize has {} means; give one for each channel",
                options_.field, images.size(1), channels);
    const auto per_channel = [&](const std::vector<double>& values) {
      return at::tensor(values, at::kFloat).view({1, channels, 1, 1});
    };
    at::Tensor out = images.to(at::kFloat);
    if (images.scalar_type() == at::kByte) out = out / 255;
    batch.set(options_.field, (out - per_channel(options_.mean)) / per_channel(options_.std));
    return batch;
  }

 private:
  NormalizeOptions options_;
};

}  // namespace

at::Tensor images_in(const Batch& batch, const std::string& field, std::string_view transform) {
  const at::Tensor& images = batch[field];
  const bool valid = images.defined() && images.dim() == 4 && images.is_cpu() &&
                     images.layout() == at::kStrided &&
                     (images.scalar_type() == at::kByte || images.is_floating_point());
  LEVIN_CHECK(
      valid, "data.transform.image",
      "'{}' is {} {}, wanted images [N, channels, height, width] of uint8 or floating-point "
      "numbers on the CPU for {}",
      field, images.defined() ? c10::toString(images.scalar_type()) : "undefined",
      images.defined() ? c10::str(images.sizes()) : "", transform);
  return images.contiguous();
}

void check_size(const std::vector<int64_t>& size, std::string_view transform) {
  const bool valid = size.size() == 2 && std::ranges::all_of(size, [](int64_t edge) {
                       return edge > 0 && edge <= int64_t{1} << 24;
                     });
  LEVIN_CHECK(valid, "data.transform.options",
              "got size = {} for {}, wanted {{height, width}} of at least 1 each",
              c10::str(at::IntArrayRef(size)), transform);
}

double TransformDraws::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

/// Marsaglia and Tsang 2000; for an alpha below 1 it is drawn for alpha + 1.
double TransformDraws::gamma(double alpha) {
  const double boost = alpha < 1 ? std::pow(1 - uniform(), 1 / alpha) : 1;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v * boost;
    }
  }
}

double TransformDraws::beta(double alpha) {
  const double a = gamma(alpha), b = gamma(alpha);
  // Both underflow for a tiny alpha, where the share is 0 or 1.
  return a + b > 0 ? a / (a + b) : (uniform() < 0.5 ? 0.0 : 1.0);
}

DatasetPtr transform(DatasetPtr dataset, std::vector<BatchTransform> transforms) {
  return std::make_shared<TransformedDataset>(std::move(dataset), std::move(transforms));
}

BatchTransform random_crop(RandomCropOptions options) { return RandomCrop(std::move(options)); }

BatchTransform random_horizontal_flip(RandomFlipOptions options) {
  return RandomFlip(std::move(options));
}

BatchTransform normalize(NormalizeOptions options) { return NormalizeImages(std::move(options)); }

BatchTransform resize(ResizeOptions options) {
  check_size(options.size, "resize");
  return [options = std::move(options)](Batch batch, std::span<const uint64_t>) {
    const at::Tensor images = images_in(batch, options.field, "resize");
    batch.set(options.field,
              at::_upsample_bilinear2d_aa(images, options.size, /*align_corners=*/false));
    return batch;
  };
}

}  // namespace levin::data
