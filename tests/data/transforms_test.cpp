// Transforms of batches. Numbers of colours and sizes are those of torchvision 0.28 (transforms/_functional_tensor.py).
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/off_disk.h"

namespace transforms {
namespace {

using levin::Batch;
using levin::data::BatchTransform;
using levin::test::error_id;
using levin::test::error_of;
using testing::StartsWith;

std::vector<uint64_t> seeds(int64_t count, uint64_t first = 100) {
  std::vector<uint64_t> all(static_cast<size_t>(count));
  for (auto& seed : all) seed = first++ * 0x9e3779b97f4a7c15ULL;
  return all;
}

at::Tensor applied(const BatchTransform& transform, const at::Tensor& images,
                   uint64_t first = 100) {
  return transform({{"image", images}}, seeds(images.size(0), first))["image"];
}

/// uint8 [3, 3, 4] of values 37 i modulo 256, the image whose results torchvision has printed.
at::Tensor picture() { return (torch::arange(36) * 37 % 256).to(at::kByte).view({3, 3, 4}); }

at::Tensor bytes(std::vector<int64_t> values) {
  return torch::tensor(values).to(at::kByte).view({3, 3, -1});
}

int64_t difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int64_t>();
}

TEST(RandomCrop, CutsRandomPartsOutOfPaddedImages) {
  const at::Tensor images = torch::arange(1, 1 + 40 * 2 * 5 * 6, at::kFloat).view({40, 2, 5, 6});
  const at::Tensor padded = torch::constant_pad_nd(images, {2, 2, 2, 2}, -7);
  const at::Tensor out =
      applied(levin::data::random_crop({.size = {4, 3}, .padding = 2, .fill = -7}), images);
  ASSERT_EQ(out.sizes(), (std::vector<int64_t>{40, 2, 4, 3}));
  std::set<std::pair<int64_t, int64_t>> places;
  for (int64_t i = 0; i < 40; ++i) {
    int64_t found = 0;
    for (int64_t top = 0; top <= 5; ++top) {
      for (int64_t left = 0; left <= 7; ++left) {
        if (!torch::equal(out[i], padded[i].narrow(1, top, 4).narrow(2, left, 3))) continue;
        places.emplace(top, left);
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << i;
  }
  std::set<int64_t> tops, lefts;
  for (const auto& [top, left] : places) {
    tops.insert(top);
    lefts.insert(left);
  }
  EXPECT_EQ(tops.size(), 6);  // every place is drawn, the first and the last too
  EXPECT_EQ(lefts.size(), 8);
}

TEST(RandomCrop, OfTheWholeImageIsTheImage) {
  const at::Tensor images = torch::randint(256, {3, 3, 5, 6}, at::kByte);
  EXPECT_TRUE(torch::equal(applied(levin::data::random_crop({.size = {5, 6}}), images), images));
}

TEST(RandomCrop, MistakesAreErrors) {
  EXPECT_EQ(error_of([] { levin::data::random_crop({.size = {3}}); }),
            "data.transform.options: got size = [3] for random_crop, wanted {height, width} of at "
            "least 1 each");
  EXPECT_THAT(error_of([] { levin::data::random_crop({.size = {3, 3}, .padding = -1}); }),
              StartsWith("data.transform.options: got padding = -1"));
  const auto crop = levin::data::random_crop({.size = {8, 3}, .padding = 1});
  EXPECT_EQ(error_of([&] { applied(crop, torch::zeros({1, 3, 5, 5})); }),
            "data.transform.image: 'image' has images of 7 x 7 pixels with padding, which "
            "random_crop cannot cut to 8 x 3; give a smaller size or more padding");
  EXPECT_EQ(error_of([&] { applied(crop, torch::zeros({1, 5, 5}, at::kByte)); }),
            "data.transform.image: 'image' is Byte [1, 5, 5], wanted images [N, channels, height, "
            "width] of uint8 or floating-point numbers on the CPU for random_crop");
  EXPECT_EQ(error_id([&] { applied(crop, torch::zeros({1, 3, 9, 9}, at::kLong)); }),
            "data.transform.image");
  EXPECT_EQ(error_id([&] { crop({{"x", torch::zeros({1, 3, 9, 9})}}, seeds(1)); }),
            "data.batch.field");
  EXPECT_EQ(error_id([&] { crop({{"image", torch::zeros({2, 3, 9, 9})}}, seeds(1)); }),
            "data.transform.image");
}

TEST(RandomFlip, MirrorsWithItsProbability) {
  const at::Tensor images = torch::rand({400, 1, 2, 3});
  const auto share = [&](const at::Tensor& out) {
    const at::Tensor flipped = (out == images.flip({3})).flatten(1).all(1);
    EXPECT_TRUE(((out == images).flatten(1).all(1) != flipped).all().item<bool>());
    return flipped.to(at::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(share(applied(levin::data::random_horizontal_flip(), images)), 0.5, 0.1);
  EXPECT_NEAR(share(applied(levin::data::random_horizontal_flip({.p = 0.2}), images)), 0.2, 0.08);
  EXPECT_EQ(share(applied(levin::data::random_horizontal_flip({.p = 0}), images)), 0);
  EXPECT_EQ(share(applied(levin::data::random_horizontal_flip({.p = 1}), images)), 1);
  EXPECT_THAT(error_of([] { levin::data::random_horizontal_flip({.p = 1.5}); }),
              StartsWith("data.transform.options: got p = 1.5"));
}

TEST(NormalizeImages, DividesBytesBy255) {
  const at::Tensor images = picture().unsqueeze(0);
  const at::Tensor mean = torch::tensor({0.4F, 0.5F, 0.6F}).view({3, 1, 1});
  const at::Tensor deviation = torch::tensor({0.2F, 0.25F, 0.3F}).view({3, 1, 1});
  const auto normalize = levin::data::normalize({.mean = {0.4, 0.5, 0.6}, .std = {0.2, 0.25, 0.3}});
  EXPECT_TRUE(torch::allclose(applied(normalize, images),
                              (images.to(at::kFloat) / 255 - mean) / deviation));
  EXPECT_TRUE(torch::allclose(applied(normalize, images.to(at::kFloat)),
                              (images.to(at::kFloat) - mean) / deviation));
  const auto one = levin::data::normalize({.mean = {0.5}, .std = {0.5}});
  EXPECT_TRUE(torch::allclose(applied(one, images), images.to(at::kFloat) / 127.5 - 1, 1e-5, 1e-6));
}

TEST(NormalizeImages, MistakesAreErrors) {
  EXPECT_THAT(error_of([] { levin::data::normalize({.mean = {0.5}, .std = {0}}); }),
              StartsWith("data.transform.options: got 1 means and 1 deviations"));
  EXPECT_EQ(error_id([] { levin::data::normalize({.mean = {0.5, 0.5}, .std = {1}}); }),
            "data.transform.options");
  EXPECT_EQ(error_id([] { levin::data::normalize({}); }), "data.transform.options");
  const auto two = levin::data::normalize({.mean = {0.5, 0.5}, .std = {1, 1}});
  EXPECT_EQ(error_of([&] { applied(two, picture().unsqueeze(0)); }),
            "data.transform.image: 'image' has 3 channels, but normalize has 2 means; give one for "
            "each channel");
}

struct JitterCase {
  const char* name;
  levin::data::ColorJitterOptions options;
  bool is_byte;
  std::vector<double> wanted;
};

// adjust_brightness, adjust_contrast, adjust_saturation and adjust_hue of picture(), and of picture() / 255.
const JitterCase kJitters[] = {
    {"brightness", {.brightness = {1.3, 1.3}}, true, {0,   48,  96,  144, 192, 240, 255, 3,   52,
                                                      100, 148, 196, 244, 255, 7,   55,  104, 152,
                                                      200, 248, 255, 11,  59,  107, 156, 204, 252,
                                                      255, 15,  63,  111, 159, 208, 255, 255, 19}},
    {"contrast", {.contrast = {0.6, 0.6}}, true, {44,  66,  88,  110, 133, 155, 177, 46,  68,
                                                  90,  112, 134, 157, 179, 47,  70,  92,  114,
                                                  136, 158, 181, 49,  71,  94,  116, 138, 160,
                                                  182, 51,  73,  95,  118, 140, 162, 184, 53}},
    {"saturation", {.saturation = {1.7, 1.7}}, true, {0,   0,   92,  129, 187, 224, 255, 0,   0,
                                                      95,  132, 190, 232, 255, 0,   14,  71,  108,
                                                      145, 235, 255, 0,   17,  74,  117, 154, 255,
                                                      255, 0,   0,   30,  120, 157, 255, 255, 0}},
    {"hue", {.hue = {0.15, 0.15}}, true, {0,   37,  194, 231, 93,  131, 168, 3,   40,
                                          197, 234, 96,  87,  124, 6,   43,  148, 185,
                                          222, 90,  127, 9,   46,  151, 188, 225, 145,
                                          182, 12,  49,  86,  191, 228, 148, 185, 15}},
    {"contrast of float32",
     {.contrast = {1.4, 1.4}},
     false,
     {0.0,    0.0291, 0.2322, 0.4354, 0.6385, 0.8416, 1.0,    0.0,    0.0456,
      0.2487, 0.4518, 0.655,  0.8581, 1.0,    0.0,    0.062,  0.2652, 0.4683,
      0.6715, 0.8746, 1.0,    0.0,    0.0785, 0.2816, 0.4848, 0.6879, 0.8911,
      1.0,    0.0,    0.095,  0.2981, 0.5013, 0.7044, 0.9075, 1.0,    0.0}},
    {"saturation of float32",
     {.saturation = {0.2, 0.2}},
     false,
     {0.3891, 0.5342, 0.2079, 0.353,  0.4065, 0.5516, 0.6967, 0.4009, 0.546,
      0.2196, 0.3647, 0.4182, 0.5366, 0.6817, 0.1545, 0.2996, 0.3531, 0.4982,
      0.6433, 0.5483, 0.6934, 0.1663, 0.3114, 0.3649, 0.4833, 0.6283, 0.302,
      0.4471, 0.2998, 0.4449, 0.59,   0.495,  0.6401, 0.3137, 0.4588, 0.3116}},
    {"hue of float32",
     {.hue = {-0.3, -0.3}},
     false,
     {0.7373, 0.8824, 0.0235, 0.1686, 0.4204, 0.5655, 0.7106, 0.749,  0.8941,
      0.0353, 0.1804, 0.4322, 0.618,  0.7631, 0.7608, 0.9059, 0.0471, 0.1922,
      0.3373, 0.6298, 0.7749, 0.7725, 0.9176, 0.0588, 0.0,    0.1451, 0.4376,
      0.5827, 0.5804, 0.7255, 0.8706, 0.0118, 0.1569, 0.4494, 0.5945, 0.5922}},
};

TEST(ColorJitter, ChangesColoursAsTorchvision) {
  for (const JitterCase& each : kJitters) {
    const at::Tensor image = each.is_byte ? picture() : picture().to(at::kFloat) / 255;
    const at::Tensor out = applied(levin::data::color_jitter(each.options), image.unsqueeze(0))[0];
    EXPECT_EQ(out.scalar_type(), image.scalar_type());
    const at::Tensor wanted = torch::tensor(each.wanted, at::kDouble).view({3, 3, 4});
    EXPECT_LE((out.to(at::kDouble) - wanted).abs().max().item<double>(), each.is_byte ? 1 : 1e-4)
        << each.name << ": " << out.flatten();
  }
}

TEST(Resize, ResizesAsTorchvision) {
  const at::Tensor images = picture().unsqueeze(0).expand({2, 3, 3, 4});
  const at::Tensor out = applied(levin::data::resize({.size = {2, 6}}), images);
  ASSERT_EQ(out.sizes(), (std::vector<int64_t>{2, 3, 2, 6}));
  EXPECT_EQ(out.scalar_type(), at::kByte);
  EXPECT_LE(difference(out[1], bytes({56,  74,  99,  123, 100, 70,  80,  99,  124, 148, 125, 96,
                                      148, 166, 164, 82,  80,  99,  172, 111, 56,  80,  105, 124,
                                      80,  98,  123, 147, 172, 190, 104, 123, 148, 172, 117, 56})
                                   .view({3, 2, 6})),
            1);
  EXPECT_THAT(error_of([] { levin::data::resize({.size = {2, 0}}); }),
              StartsWith("data.transform.options: got size = [2, 0] for resize"));
}

TEST(ColorJitter, DrawsFactorsAndOrders) {
  const at::Tensor images = picture().unsqueeze(0).expand({60, 3, 3, 4});
  const at::Tensor out = applied(levin::data::color_jitter({.brightness = {0.4}}), images);
  std::set<int64_t> first;  // 37 times a factor from [0.6, 1.4]
  for (int64_t i = 0; i < 60; ++i) first.insert(out[i][0][0][1].item<int64_t>());
  EXPECT_GE(*first.begin(), 22);
  EXPECT_LE(*first.rbegin(), 51);
  EXPECT_LT(*first.begin(), 26);
  EXPECT_GT(*first.rbegin(), 47);
  // Two operations that do not commute give two results.
  const at::Tensor two =
      applied(levin::data::color_jitter({.brightness = {2, 2}, .contrast = {0.5, 0.5}}), images);
  std::set<int64_t> orders;
  for (int64_t i = 0; i < 60; ++i) orders.insert(two[i].to(at::kLong).sum().item<int64_t>());
  EXPECT_EQ(orders.size(), 2);
  EXPECT_TRUE(torch::equal(applied(levin::data::color_jitter({}), images), images));
}

TEST(ColorJitter, MistakesAreErrors) {
  EXPECT_EQ(error_of([] { levin::data::color_jitter({.hue = {0.6}}); }),
            "data.transform.options: got hue = [0.6] for color_jitter, wanted {}, {strength} or "
            "{min, max} within [-0.5, 0.5]");
  EXPECT_THAT(error_of([] { levin::data::color_jitter({.contrast = {1, 0.5}}); }),
              StartsWith("data.transform.options: got contrast = [1, 0.5]"));
  EXPECT_EQ(error_id([] { levin::data::color_jitter({.saturation = {-1}}); }),
            "data.transform.options");
  EXPECT_EQ(error_id([] { levin::data::color_jitter({.brightness = {1, 2, 3}}); }),
            "data.transform.options");
  EXPECT_EQ(error_id([] { applied(levin::data::color_jitter({}), torch::zeros({1, 1, 2, 2})); }),
            "data.transform.image");
}

TEST(Mixup, MixesImagesAndLabelsByOneShare) {
  const at::Tensor images = torch::rand({48, 2, 3, 3});
  const at::Tensor labels = torch::arange(48) % 7;
  const Batch out = levin::data::mixup({.num_classes = 7, .alpha = 0.4})(
      {{"image", images}, {"label", labels}}, seeds(48));
  // MixUp of torchvision: batch * lambda + batch.roll(1, 0) * (1 - lambda), and one-hot labels alike.
  const at::Tensor share = out["label"].gather(1, labels.unsqueeze(1));
  const at::Tensor wide = share.view({48, 1, 1, 1});
  EXPECT_TRUE(torch::allclose(out["image"], images * wide + images.roll(1, 0) * (1 - wide)));
  EXPECT_TRUE(torch::allclose(
      out["label"],
      torch::one_hot(labels, 7) * share + torch::one_hot(labels.roll(1, 0), 7) * (1 - share)));
  EXPECT_EQ(std::get<0>(at::_unique(share)).numel(), 48);
}

TEST(Mixup, SharesAreDrawnFromBeta) {
  // Beta(a, a): mean 1/2, variance 1 / (4 (2 a + 1)).
  for (const double alpha : {0.2, 1.0, 3.0}) {
    const at::Tensor labels = torch::arange(4000) % 2;
    const Batch out = levin::data::mixup({.num_classes = 2, .alpha = alpha})(
        {{"image", torch::zeros({4000, 1, 1, 1})}, {"label", labels}}, seeds(4000));
    const at::Tensor share = out["label"].gather(1, labels.unsqueeze(1)).to(at::kDouble);
    EXPECT_NEAR(share.mean().item<double>(), 0.5, 0.03) << alpha;
    EXPECT_NEAR(share.var().item<double>(), 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
    EXPECT_GE(share.min().item<double>(), 0);
    EXPECT_LE(share.max().item<double>(), 1);
  }
}

TEST(Cutmix, ReplacesABoxAndMixesLabelsByItsArea) {
  const int64_t count = 60;
  const at::Tensor images =
      torch::arange(count).view({count, 1, 1, 1}).expand({count, 3, 8, 10}).to(at::kByte);
  const at::Tensor labels = torch::arange(count) % 9;
  const Batch out =
      levin::data::cutmix({.num_classes = 9})({{"image", images}, {"label", labels}}, seeds(count));
  int64_t num_mixed = 0;
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor other = out["image"][i] != i;  // [3, 8, 10]
    EXPECT_TRUE(
        (out["image"][i].masked_select(other) == (i + count - 1) % count).all().item<bool>());
    const double area = other.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(out["label"][i][i % 9].item<double>(), 1 - area, 1e-6);
    EXPECT_NEAR(out["label"][i].sum().item<double>(), 1, 1e-6);
    const at::Tensor rows = other[0].any(1), columns = other[0].any(0);
    EXPECT_EQ(other[0].sum().item<int64_t>(),  // a box
              rows.sum().item<int64_t>() * columns.sum().item<int64_t>());
    num_mixed += area > 0 ? 1 : 0;
  }
  EXPECT_GT(num_mixed, count / 2);
  EXPECT_TRUE((images[3] == 3).all().item<bool>()) << "the batch that was given is left alone";
}

TEST(Mixes, FollowOneAnother) {
  const Batch mixed = levin::data::mixup({.num_classes = 3})(
      {{"image", torch::rand({4, 1, 2, 2})}, {"label", torch::arange(4) % 3}}, seeds(4));
  const Batch both = levin::data::cutmix({.num_classes = 3})(mixed, seeds(4, 9));
  EXPECT_EQ(both["label"].sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(torch::allclose(both["label"].sum(1), torch::ones({4})));
}

TEST(Mixes, MistakesAreErrors) {
  EXPECT_EQ(error_of([] { levin::data::mixup({}); }),
            "data.transform.options: got num_classes = 0 for mixup, wanted the number of classes");
  EXPECT_THAT(error_of([] { levin::data::cutmix({.num_classes = 2, .alpha = 0}); }),
              StartsWith("data.transform.options: got alpha = 0 for cutmix"));
  const auto mix = [](const at::Tensor& images, const at::Tensor& labels) {
    return error_of([&] {
      levin::data::mixup({.num_classes = 3})({{"image", images}, {"label", labels}}, seeds(2));
    });
  };
  const at::Tensor images = torch::zeros({2, 1, 2, 2});
  EXPECT_EQ(mix(images, torch::tensor({0, 3})),
            "data.transform.image: 'label' has the class 3, but num_classes is 3 for mixup");
  EXPECT_THAT(mix(images, torch::zeros({2, 4})),
              StartsWith("data.transform.image: 'label' is Float [2, 4]"));
  EXPECT_EQ(mix(images.to(at::kByte), torch::tensor({0, 1})),
            "data.transform.image: 'image' is uint8, wanted floating-point images for mixup; put "
            "normalize before it");
  EXPECT_THAT(mix(torch::zeros({3, 1, 2, 2}), torch::tensor({0, 1, 2})),
              StartsWith("data.transform.image: got 3 images and 2 seeds"));
}

/// All images of an epoch by their index, read with this many workers and ranks.
at::Tensor epoch_of(const std::vector<BatchTransform>& transforms, int64_t workers, int64_t ranks,
                    int64_t epoch = 1) {
  torch::manual_seed(0);
  const levin::DatasetPtr images = levin::test::off_disk(levin::data::tensors(
      {{"image", torch::randint(256, {24, 3, 6, 6}, at::kByte)}, {"index", torch::arange(24)}}));
  const auto dataset = levin::data::transform(images, transforms);
  at::Tensor all;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    levin::DataLoader loader(dataset,
                             {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 5});
    loader.set_slice({rank, ranks}, /*even=*/true);
    loader.set_epoch(epoch);
    for (Batch batch; loader.next(batch);) {
      if (!all.defined()) {
        auto sizes = batch["image"].sizes().vec();
        sizes[0] = 24;
        all = torch::full(sizes, -1, batch["image"].options());
      }
      all.index_copy_(0, batch["index"], batch["image"]);
    }
  }
  return all;
}

TEST(Transform, DoesNotDependOnWorkersAndRanks) {
  const std::vector<BatchTransform> transforms = {
      levin::data::random_crop({.size = {5, 5}, .padding = 1}),
      levin::data::random_horizontal_flip(),
      levin::data::color_jitter({.brightness = {0.4}, .saturation = {0.4}, .hue = {0.1}}),
      levin::data::normalize({.mean = {0.5}, .std = {0.5}})};
  const at::Tensor wanted = epoch_of(transforms, 0, 1);
  EXPECT_TRUE(torch::equal(epoch_of(transforms, 3, 1), wanted));
  EXPECT_TRUE(torch::equal(epoch_of(transforms, 2, 3), wanted));
  EXPECT_FALSE(torch::equal(epoch_of(transforms, 0, 1, 2), wanted));
}

TEST(Transform, EachOfTheListHasDrawsOfItsOwn) {
  // Two flips with the same draws would undo each other.
  const auto flip = levin::data::random_horizontal_flip();
  EXPECT_FALSE(torch::equal(epoch_of({flip, flip}, 0, 1), epoch_of({}, 0, 1)));
}

TEST(Transform, MistakesAreErrors) {
  EXPECT_EQ(error_id([] { levin::data::transform(nullptr, {}); }), "data.dataset.null");
  EXPECT_EQ(error_of([] { levin::data::transform(levin::test::numbers(2), {nullptr}); }),
            "data.transform.options: transform 0 of the list is not set; give a function or leave "
            "it out");
}

}  // namespace
}  // namespace transforms
