// Convolutions, pools, normalizations and resizing with the options that the table of layers leaves
// out, and sizes that are not nice.
#include <limits>

#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT
using T = const OperatorTensors&;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

OperatorCase with_gradients(const char* name, const std::function<OperatorTensors()>& inputs,
                            std::function<OperatorTensors(T)> function) {
  return {.name = name,
          .inputs = inputs,
          .function = std::move(function),
          .dtypes = kWide,
          .with_gradients = true};
}

#define GRADIENTS(name, inputs, ...) \
  with_gradients(name, inputs, [](T t) { return listed(__VA_ARGS__); })

std::vector<OperatorCase> convolutions() {
  return {GRADIENTS("Conv1dOfOddStride", drawn({{2, 4, 11}, {6, 2, 3}, {6}}),
                    at::conv1d(t[0], t[1], t[2], 3, 2, 2, 2)),
          GRADIENTS("Conv2dOfAllOptions", drawn({{2, 4, 9, 8}, {6, 2, 3, 2}, {6}}),
                    at::conv2d(t[0], t[1], t[2], {2, 3}, {2, 1}, {1, 2}, 2)),
          GRADIENTS("Conv2dDepthwise", drawn({{2, 4, 7, 7}, {8, 1, 3, 3}}),
                    at::conv2d(t[0], t[1], {}, {1, 1}, {1, 1}, {1, 1}, 4)),
          GRADIENTS("Conv2dOfOnePixel", drawn({{3, 5, 4, 4}, {2, 5, 1, 1}, {2}}),
                    at::conv2d(t[0], t[1], t[2], {2, 2})),
          GRADIENTS("Conv2dSame", drawn({{2, 3, 6, 6}, {4, 3, 4, 4}}),
                    at::conv2d(t[0], t[1], {}, {1, 1}, "same")),
          GRADIENTS("Conv2dUnbatched", drawn({{3, 6, 6}, {4, 3, 3, 3}}), at::conv2d(t[0], t[1])),
          GRADIENTS("Conv3dOfAllOptions", drawn({{1, 4, 6, 5, 7}, {4, 2, 2, 3, 2}, {4}}),
                    at::conv3d(t[0], t[1], t[2], {2, 1, 3}, {1, 0, 2}, {2, 1, 1}, 2)),
          GRADIENTS("ConvTranspose1dGroups", drawn({{2, 4, 5}, {4, 3, 3}, {6}}),
                    at::conv_transpose1d(t[0], t[1], t[2], 3, 1, 2, 2, 2)),
          GRADIENTS("ConvTranspose2dOfAllOptions", drawn({{2, 4, 5, 4}, {4, 3, 3, 2}, {6}}),
                    at::conv_transpose2d(t[0], t[1], t[2], {3, 2}, {2, 1}, {2, 1}, 2, {1, 2})),
          GRADIENTS("ConvTranspose3d", drawn({{1, 2, 3, 4, 3}, {2, 3, 2, 3, 2}, {3}}),
                    at::conv_transpose3d(t[0], t[1], t[2], {2, 1, 2}, {1, 1, 0}, {1, 0, 1})),
          GRADIENTS("UnfoldOfAllOptions", drawn({{2, 3, 7, 8}}),
                    at::im2col(t[0], {3, 2}, {2, 1}, {1, 2}, {2, 3})),
          GRADIENTS("UnfoldUnbatched", drawn({{3, 7, 8}}),
                    at::im2col(t[0], {3, 2}, {1, 1}, {0, 0}, {1, 1})),
          GRADIENTS("FoldOfAllOptions", drawn({{2, 18, 12}}),
                    at::col2im(t[0], {7, 8}, {3, 2}, {2, 1}, {1, 2}, {2, 3}).square())};
}

OperatorTensors with_extremes() {
  at::Tensor x = torch::randn({2, 3, 7, 6}, at::kDouble);
  x[0][0][2][3] = kNaN;
  x[0][1][4][4] = kInfinity;
  x[1][2].fill_(-kInfinity);
  x[1][1].fill_(2.0);
  return {x};
}

std::vector<OperatorCase> pools() {
  const auto plane = drawn({{2, 3, 7, 8}});
  return {
      GRADIENTS("MaxPool2dOfAllOptions", plane,
                at::max_pool2d_with_indices(t[0], {3, 2}, {2, 3}, {1, 1}, {2, 1}, true)),
      GRADIENTS("MaxPool2dOverlaps", plane,
                at::max_pool2d_with_indices(t[0], {3, 3}, {1, 1}, {1, 1})),
      CASE("MaxPool2dOfExtremes", with_extremes,
           at::max_pool2d_with_indices(t[0], {3, 2}, {2, 1}, {1, 1})),
      CASE("MaxPool2dWithoutIndices", plane, at::max_pool2d(t[0], {3, 2}, {2, 3}, {1, 1}, {2, 1})),
      GRADIENTS("MaxPool1d", drawn({{2, 3, 11}}), at::max_pool1d(t[0], 3, 2, 1, 2, true)),
      GRADIENTS("MaxPoolUnbatched", drawn({{3, 7, 8}}), at::max_pool2d(t[0], {2, 2})),
      GRADIENTS("MaxPoolOfALargeWindow", drawn({{1, 2, 20, 21}}),
                at::max_pool2d(t[0], {13, 12}, {3, 4})),
      GRADIENTS(
          "MaxPool3dOfAllOptions", drawn({{1, 2, 6, 7, 5}}),
          at::max_pool3d_with_indices(t[0], {2, 3, 2}, {1, 2, 3}, {1, 1, 0}, {2, 1, 1}, true)),
      GRADIENTS("AvgPool2dOfAllOptions", plane,
                at::avg_pool2d(t[0], {3, 2}, {2, 3}, {1, 1}, true, true)),
      GRADIENTS("AvgPool2dOfWhatIsThere", plane,
                at::avg_pool2d(t[0], {3, 2}, {2, 3}, {1, 1}, true, false)),
      GRADIENTS("AvgPool2dWithDivisor", plane,
                at::avg_pool2d(t[0], {3, 2}, {2, 2}, {1, 0}, false, true, 5)),
      GRADIENTS("AvgPool3d", drawn({{1, 2, 6, 7, 5}}),
                at::avg_pool3d(t[0], {2, 3, 2}, {1, 2, 3}, {1, 1, 0}, true, false)),
      GRADIENTS("AdaptiveAvgPool2d", plane, at::adaptive_avg_pool2d(t[0], {3, 5})),
      GRADIENTS("AdaptiveAvgPoolToMore", plane, at::adaptive_avg_pool2d(t[0], {14, 11})),
      GRADIENTS("AdaptiveAvgPool3d", drawn({{1, 2, 6, 7, 5}}),
                at::adaptive_avg_pool3d(t[0], {3, 3, 2})),
      GRADIENTS("AdaptiveMaxPool2d", plane, at::adaptive_max_pool2d(t[0], {3, 5})),
      GRADIENTS("AdaptiveMaxPoolEven", drawn({{2, 3, 6, 8}}),
                at::adaptive_max_pool2d(t[0], {3, 2})),
      GRADIENTS("AdaptiveMaxPool3d", drawn({{1, 2, 6, 7, 5}}),
                at::adaptive_max_pool3d(t[0], {3, 3, 2}))};
}

std::vector<OperatorCase> normalizations() {
  const auto plane = drawn({{3, 4, 5, 5}, {4}, {4}});
  return {
      GRADIENTS("BatchNormWithoutWeights", plane,
                at::batch_norm(t[0], {}, {}, {}, {}, true, 0.1, 1e-3, false)),
      GRADIENTS("BatchNormByGivenStatistics", plane,
                at::batch_norm(t[0], t[1], t[2], t[2].detach(), t[1].detach().square(), false, 0.1,
                               1e-3, false)),
      GRADIENTS("LayerNormOfPlanes", drawn({{3, 4, 5}, {4, 5}, {4, 5}}),
                at::layer_norm(t[0], {4, 5}, t[1], t[2])),
      GRADIENTS("LayerNormWithoutWeights", drawn({{3, 4, 5}}), at::layer_norm(t[0], {5})),
      GRADIENTS("LayerNormOfARow", drawn({{5}, {5}}), at::layer_norm(t[0], {5}, t[1])),
      GRADIENTS("GroupNormWithoutWeights", plane, at::group_norm(t[0], 2)),
      GRADIENTS("GroupNormOfRows", drawn({{3, 4}, {4}, {4}}), at::group_norm(t[0], 2, t[1], t[2])),
      GRADIENTS("WeightNormOfTheFirst", drawn({{4, 3, 2}, {4, 1, 1}}),
                at::_weight_norm(t[0], t[1], 0)),
      GRADIENTS("WeightNormOfTheLast", drawn({{4, 3, 2}, {1, 1, 2}}),
                at::_weight_norm(t[0], t[1], 2)),
      GRADIENTS("RmsNorm", drawn({{3, 4, 5}, {5}}), at::rms_norm(t[0], {5}, t[1], 1e-5))};
}

std::vector<OperatorCase> resizes() {
  const auto row = drawn({{2, 3, 7}});
  const auto plane = drawn({{2, 3, 5, 7}});
  const auto cube = drawn({{1, 2, 3, 4, 5}});
  return {
      GRADIENTS("NearestToLess", plane, at::upsample_nearest2d(t[0], {3, 4})),
      GRADIENTS("NearestToThreeTimes", plane, at::upsample_nearest2d(t[0], {15, 21})),
      GRADIENTS("NearestByScale", plane, at::upsample_nearest2d(t[0], {8, 11}, 1.7, 1.6)),
      GRADIENTS("NearestExact", plane, at::_upsample_nearest_exact2d(t[0], {8, 4})),
      GRADIENTS("Nearest1d", row, at::upsample_nearest1d(t[0], {10})),
      GRADIENTS("Nearest3d", cube, at::upsample_nearest3d(t[0], {6, 5, 4})),
      GRADIENTS("BilinearToLess", plane, at::upsample_bilinear2d(t[0], {3, 4}, false)),
      GRADIENTS("BilinearCorners", plane, at::upsample_bilinear2d(t[0], {9, 1}, true)),
      GRADIENTS("BilinearByScale", plane, at::upsample_bilinear2d(t[0], {8, 11}, false, 1.7, 1.6)),
      GRADIENTS("Linear", row, at::upsample_linear1d(t[0], {17}, false)),
      GRADIENTS("Trilinear", cube, at::upsample_trilinear3d(t[0], {5, 4, 3}, false)),
      GRADIENTS("Bicubic", plane, at::upsample_bicubic2d(t[0], {9, 6}, false)),
      GRADIENTS("BicubicByScale", plane, at::upsample_bicubic2d(t[0], {8, 11}, false, 1.7, 1.6)),
      GRADIENTS("ReflectionOfOneSide", plane, at::reflection_pad2d(t[0], {3, 0, 0, 2})),
      GRADIENTS("ReflectionOfRows", row, at::reflection_pad1d(t[0], {6, 1})),
      GRADIENTS("Reflection3d", cube, at::reflection_pad3d(t[0], {4, 1, 2, 0, 1, 2})),
      GRADIENTS("ReplicationOfOneSide", plane, at::replication_pad2d(t[0], {9, 0, 0, 2})),
      GRADIENTS("ReplicationThatCrops", plane, at::replication_pad2d(t[0], {-2, 3, 1, -1})),
      GRADIENTS("ReplicationOfRows", row, at::replication_pad1d(t[0], {9, 1})),
      GRADIENTS("Replication3d", cube, at::replication_pad3d(t[0], {4, 1, 2, 0, 1, 2})),
      GRADIENTS("PixelShuffle", drawn({{3, 12, 2, 4}}), at::pixel_shuffle(t[0], 2)),
      GRADIENTS("PixelUnshuffle", drawn({{3, 2, 6, 9}}), at::pixel_unshuffle(t[0], 3)),
      GRADIENTS("ChannelShuffle", drawn({{3, 6, 2, 4}}), at::channel_shuffle(t[0], 3))};
}

class LayerOptions : public testing::TestWithParam<OperatorCase> {};

TEST_P(LayerOptions, EqualTheCpu) { expect_same_on_both(GetParam()); }

const auto kNameOf = [](const testing::TestParamInfo<OperatorCase>& info) {
  return info.param.name;
};
INSTANTIATE_TEST_SUITE_P(Convolutions, LayerOptions, testing::ValuesIn(convolutions()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Pools, LayerOptions, testing::ValuesIn(pools()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Normalizations, LayerOptions, testing::ValuesIn(normalizations()),
                         kNameOf);
INSTANTIATE_TEST_SUITE_P(Resizes, LayerOptions, testing::ValuesIn(resizes()), kNameOf);

}  // namespace
