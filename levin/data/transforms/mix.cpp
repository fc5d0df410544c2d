#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "levin/base/check.h"
#include "levin/data/transforms/draws_impl.h"
#include "levin/data/transforms/transform_impl.h"

namespace levin::data {
namespace {

class MixTransform {
 public:
  MixTransform(MixOptions options, const char* name) : options_(std::move(options)), name_(name) {
    LEVIN_CHECK(options_.num_classes > 0, "data.transform.options",
                "got num_classes = {} for {}, wanted the number of classes", options_.num_classes,
                name_);
    LEVIN_CHECK(options_.alpha > 0 && std::isfinite(options_.alpha), "data.transform.options",
                "got alpha = {} for {}, wanted a number above 0", options_.alpha, name_);
  }

 protected:
  at::Tensor images(const Batch& batch, std::span<const uint64_t> seeds) const {
    at::Tensor images = images_in(batch, options_.field, name_);
    LEVIN_CHECK(images.size(0) == std::ssize(seeds), "data.transform.image",
                "got {} images and {} seeds, wanted a seed for each image", images.size(0),
                seeds.size());
    return images;
  }

  /// share [N]: of the sample itself; the rest is that of the one before it.
  Batch with(Batch batch, at::Tensor images, const std::vector<float>& share) const {
    const at::Tensor labels = soft_labels(batch[options_.label], images.size(0));
    const at::Tensor own = at::tensor(share, at::kFloat).unsqueeze(1);
    batch.set(options_.label, labels * own + labels.roll(1, 0) * (1 - own));
    batch.set(options_.field, std::move(images));
    return batch;
  }

  const MixOptions& options() const { return options_; }
  const char* name() const { return name_; }

 private:
  at::Tensor soft_labels(const at::Tensor& labels, int64_t size) const {
    const int64_t classes = options_.num_classes;
    const bool is_soft =
        labels.dim() == 2 && labels.is_floating_point() && labels.size(1) == classes;
    const bool is_hard = labels.dim() == 1 && labels.scalar_type() == at::kLong;
    LEVIN_CHECK((is_soft || is_hard) && labels.size(0) == size, "data.transform.image",
                "'{}' is {} {}, wanted int64 [{}] or float32 [{}, {}] for {}", options_.label,
                c10::toString(labels.scalar_type()), c10::str(labels.sizes()), size, size, classes,
                name_);
    if (is_soft) return labels.to(at::kFloat);
    const at::Tensor held = labels.contiguous();
    const int64_t* label = held.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < size; ++i) {
      LEVIN_CHECK(label[i] >= 0 && label[i] < classes, "data.transform.image",
                  "'{}' has the class {}, but num_classes is {} for {}", options_.label, label[i],
                  classes, name_);
    }
    return at::one_hot(held, classes).to(at::kFloat);
  }

  MixOptions options_;
  const char* name_;
};

struct Mixup : MixTransform {
  explicit Mixup(MixOptions options) : MixTransform(std::move(options), "mixup") {}

  Batch operator()(Batch batch, std::span<const uint64_t> seeds) const {
    const at::Tensor images = this->images(batch, seeds);
    LEVIN_CHECK(images.is_floating_point(), "data.transform.image",
                "'{}' is uint8, wanted floating-point images for mixup; put normalize before it",
                options().field);
    std::vector<float> share;
    for (const uint64_t seed : seeds) {
      share.push_back(static_cast<float>(TransformDraws(seed).beta(options().alpha)));
    }
    const at::Tensor own = at::tensor(share, images.options()).view({-1, 1, 1, 1});
    return with(std::move(batch), images * own + images.roll(1, 0) * (1 - own), share);
  }
};

struct Cutmix : MixTransform {
  explicit Cutmix(MixOptions options) : MixTransform(std::move(options), "cutmix") {}

  Batch operator()(Batch batch, std::span<const uint64_t> seeds) const {
    const at::Tensor images = this->images(batch, seeds);
    const int64_t count = images.size(0), height = images.size(2), width = images.size(3);
    at::Tensor out = images.clone();
    std::vector<float> share;
    for (int64_t i = 0; i < count; ++i) {
      TransformDraws draws(seeds[static_cast<size_t>(i)]);
      const double drawn = draws.beta(options().alpha);
      const int64_t x = draws.below(width), y = draws.below(height);
      const double radius = 0.5 * std::sqrt(1 - drawn);
      const auto half_width = static_cast<int64_t>(radius * static_cast<double>(width));
      const auto half_height = static_cast<int64_t>(radius * static_cast<double>(height));
      const int64_t left = std::max<int64_t>(x - half_width, 0);
      const int64_t top = std::max<int64_t>(y - half_height, 0);
      const int64_t columns = std::min(x + half_width, width) - left;
      const int64_t rows = std::min(y + half_height, height) - top;
      const auto box = [&](const at::Tensor& image) {
        return image.narrow(1, top, rows).narrow(2, left, columns);
      };
      box(out[i]).copy_(box(images[(i + count - 1) % count]));
      share.push_back(static_cast<float>(1 - static_cast<double>(rows * columns) /
                                                 static_cast<double>(height * width)));
    }
    return with(std::move(batch), out, share);
  }
};

}  // namespace

BatchTransform mixup(MixOptions options) { return Mixup(std::move(options)); }
BatchTransform cutmix(MixOptions options) { return Cutmix(std::move(options)); }

}  // namespace levin::data
