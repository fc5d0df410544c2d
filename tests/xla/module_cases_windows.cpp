// Convolutions, pools, resizing, padding.
#include "tests/xla/module_cases.h"

namespace levin::test {
namespace {

namespace nn = torch::nn;
using Sizes = std::vector<int64_t>;

// Of two dimensions with each option; of one and three, which share their lowerings, with a few.

/// [N, C, 7, 6, 5], of num_dims dimensions.
std::function<OperatorTensors()> images(int64_t num_dims, int64_t channels, int64_t samples = 2) {
  Sizes sizes = samples > 0 ? Sizes{samples, channels} : Sizes{channels};
  for (int64_t i = 0; i < num_dims; ++i) sizes.push_back(7 - i);
  return drawn({sizes});
}

template <class Layer, class Options, size_t kDims>
void add_convolutions(const std::string& name, ModuleCases& all) {
  const Options plain(4, 6, 3);
  const auto add = [&](const std::string& form, Options options, int64_t samples = 2) {
    all.push_back(MODULE(name + form, Layer(options), images(kDims, 4, samples), m->forward(t[0])));
  };
  using Each = torch::ExpandingArray<kDims>;
  if (kDims == 2) add("Strided", Options(plain).stride(2).padding(Each(1)));
  if (kDims == 2) add("Dilated", Options(plain).dilation(2).padding(Each(2)));
  if (kDims == 2) add("Groups", Options(plain).groups(2).padding(Each(1)));
  add("Depthwise", Options(4, 8, 2).groups(4));
  add("WithoutBias", Options(plain).bias(false));
  add("OfOne", Options(4, 3, 1));
  add("Unbatched", plain, 0);
  add("AllAtOnce", Options(4, 6, 2).stride(2).dilation(2).groups(2).padding(Each(2)));
  if constexpr (requires(Options options) { options.padding(torch::kSame); }) {
    add("Same", Options(4, 6, 2).padding(torch::kSame));
    add("SameDilated", Options(plain).padding(torch::kSame).dilation(2));
    add("Valid", Options(plain).padding(torch::kValid));
    add("Reflect", Options(plain).padding(Each(1)).padding_mode(torch::kReflect));
    add("Replicate", Options(plain).padding(Each(2)).padding_mode(torch::kReplicate));
    add("Circular", Options(plain).padding(Each(1)).padding_mode(torch::kCircular));
    add("CircularSame", Options(plain).padding(torch::kSame).padding_mode(torch::kCircular));
  } else {
    add("MoreOfTheEnd", Options(plain).stride(3).padding(1).output_padding(2));
    add("DilatedMoreOfTheEnd", Options(plain).stride(2).dilation(3).output_padding(1));
    const Sizes sizes = {15, 13, 11};
    const Sizes asked(sizes.begin(), sizes.begin() + kDims);
    all.push_back(MODULE(name + "OfOutputSize", Layer(Options(plain).stride(2)), images(kDims, 4),
                         m->forward(t[0], at::IntArrayRef(asked))));
  }
}

template <class Layer, class Options, size_t kDims>
void add_max_pools(const std::string& name, ModuleCases& all) {
  const auto add = [&](const std::string& form, Options options, int64_t samples = 2) {
    all.push_back(MODULE(name + form, Layer(options), images(kDims, 2, samples), m->forward(t[0])));
  };
  add("Overlapping", Options(3).stride(1).padding(1));
  add("Dilated", Options(2).dilation(2).stride(1));
  add("Ceil", Options(3).stride(2).ceil_mode(true));
  add("CeilPadded", Options(2).stride(2).padding(1).ceil_mode(true));
  add("Unbatched", Options(2), 0);
  all.push_back(MODULE(name + "WithPlaces", Layer(Options(3).stride(2).padding(1)),
                       images(kDims, 2), m->forward_with_indices(t[0])));
}

template <class Layer, class Options, size_t kDims>
void add_mean_pools(const std::string& name, ModuleCases& all) {
  const auto add = [&](const std::string& form, Options options, int64_t samples = 2) {
    all.push_back(MODULE(name + form, Layer(options), images(kDims, 2, samples), m->forward(t[0])));
  };
  add("Overlapping", Options(3).stride(1).padding(1));
  add("OfWhatIsThere", Options(3).stride(2).padding(1).count_include_pad(false));
  add("Ceil", Options(3).stride(2).ceil_mode(true));
  add("CeilPadded", Options(3).stride(2).padding(1).ceil_mode(true).count_include_pad(false));
  add("Unbatched", Options(2), 0);
  if constexpr (kDims > 1) {  // where ATen takes a divisor
    add("Divisor", Options(2).divisor_override(3));
    add("DivisorPadded", Options(3).padding(1).ceil_mode(true).divisor_override(5));
  }
}

template <class Layer, class Options, size_t kDims>
void add_power_pools(const std::string& name, ModuleCases& all) {
  const auto add = [&](const std::string& form, Options options) {
    all.push_back(MODULE(name + form, Layer(options), images(kDims, 2), m->forward(t[0].abs())));
  };
  add("OfThree", Options(3, 2));
  add("OfOneStrided", Options(1, 3).stride(2));
  add("Ceil", Options(2, 3).stride(2).ceil_mode(true));
  add("OfAFraction", Options(1.5, 2));
}

/// Unpools what a pool of the same layer gave, to the sizes that went in.
template <class Pool, class PoolOptions, class Layer, class Options, size_t kDims>
void add_unpools(const std::string& name, ModuleCases& all) {
  const auto add = [&](const std::string& form, PoolOptions pool, Options options, int64_t size) {
    Sizes sizes(kDims + 2, size);
    sizes[0] = sizes[1] = 2;
    all.push_back(MODULE(name + form, Layer(options), drawn({sizes}), [&] {
      const auto [values, places] = Pool(pool)->forward_with_indices(t[0]);
      return m->forward(values, places);
    }()));
  };
  add("", PoolOptions(2), Options(2), 6);
  add("Strided", PoolOptions(2).stride(3), Options(2).stride(3), 8);
  add("Padded", PoolOptions(3).stride(2).padding(1), Options(3).stride(2).padding(1), 5);
  // A pool leaves out the last row of six. Without samples and channels LibTorch takes no sizes (2.13).
  Sizes sizes(kDims + 2, 6);
  sizes[0] = sizes[1] = 2;
  all.push_back(MODULE(name + "OfOutputSize", Layer(Options(3).stride(2)), drawn({sizes}), [&] {
    const auto [values, places] = Pool(PoolOptions(3).stride(2))->forward_with_indices(t[0]);
    return m->forward(values, places, sizes);
  }()));
}

void add_adaptive_pools(ModuleCases& all) {
  using Half = std::optional<int64_t>;
  const auto row = images(1, 2);
  const auto plane = images(2, 2);
  const auto cube = images(3, 2);
  using Two = nn::AdaptiveAvgPool2dOptions;
  using Three = nn::AdaptiveAvgPool3dOptions;
  for (ModuleCase& of : ModuleCases{
           MODULE("AdaptiveAvgPool1dUneven", nn::AdaptiveAvgPool1d(3), row, m->forward(t[0])),
           MODULE("AdaptiveAvgPool1dToMore", nn::AdaptiveAvgPool1d(9), row, m->forward(t[0])),
           MODULE("AdaptiveAvgPool1dUnbatched", nn::AdaptiveAvgPool1d(2), images(1, 2, 0),
                  m->forward(t[0])),
           MODULE("AdaptiveAvgPool2dOfOneSide", nn::AdaptiveAvgPool2d(Two({Half(), Half(4)})),
                  plane, m->forward(t[0])),
           MODULE("AdaptiveAvgPool2dUnbatched", nn::AdaptiveAvgPool2d(Two({3, 4})), images(2, 2, 0),
                  m->forward(t[0])),
           MODULE("AdaptiveAvgPool3dOfTwoSides",
                  nn::AdaptiveAvgPool3d(Three({Half(3), Half(), Half(2)})), cube, m->forward(t[0])),
           MODULE("AdaptiveAvgPool3dTo1", nn::AdaptiveAvgPool3d(1), cube, m->forward(t[0])),
           MODULE("AdaptiveAvgPool3dUnbatched", nn::AdaptiveAvgPool3d(Three({3, 4, 2})),
                  images(3, 2, 0), m->forward(t[0])),
           MODULE("AdaptiveMaxPool1dUnbatched", nn::AdaptiveMaxPool1d(3), images(1, 2, 0),
                  m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool2dUnbatched",
                  nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({3, 4})), images(2, 2, 0),
                  m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool3dUnbatched",
                  nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({3, 4, 2})), images(3, 2, 0),
                  m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool3dOfOneSide",
                  nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({Half(3), Half(), Half()})),
                  cube, m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool1dUneven", nn::AdaptiveMaxPool1d(3), row,
                  m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool2dOfOneSide",
                  nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({Half(4), Half()})), plane,
                  m->forward_with_indices(t[0])),
           MODULE("AdaptiveMaxPool2dTo1", nn::AdaptiveMaxPool2d(1), plane, m->forward(t[0])),
           MODULE("AdaptiveMaxPool3dUneven",
                  nn::AdaptiveMaxPool3d(nn::AdaptiveMaxPool3dOptions({3, 4, 2})), cube,
                  m->forward_with_indices(t[0]))}) {
    all.push_back(std::move(of));
  }
}

void add_fractional_pools(ModuleCases& all) {
  using Two = nn::FractionalMaxPool2dOptions;
  using Three = nn::FractionalMaxPool3dOptions;
  const at::Tensor of_planes = torch::linspace(0.1, 0.8, 8).view({2, 2, 2});
  const at::Tensor of_cubes = torch::linspace(0.1, 0.8, 12).view({2, 2, 3});
  // With samples on the CPU where the windows lie is known, and here they are.
  all.push_back(
      on_host(MODULE("FractionalMaxPool2dOfSize", nn::FractionalMaxPool2d(Two(2).output_size(3)),
                     joined(images(2, 2), given([=] { return listed(of_planes); })), [&] {
                       m->_random_samples = t[1].detach();
                       return m->forward_with_indices(t[0]);
                     }())));
  all.push_back(on_host(
      MODULE("FractionalMaxPool2dOfRatio",
             nn::FractionalMaxPool2d(Two(2).output_ratio(torch::ExpandingArray<2, double>(0.6))),
             joined(images(2, 2), given([=] { return listed(of_planes); })), [&] {
               m->_random_samples = t[1].detach();
               return m->forward(t[0]);
             }())));
  all.push_back(
      on_host(MODULE("FractionalMaxPool3dOfSize", nn::FractionalMaxPool3d(Three(2).output_size(3)),
                     joined(images(3, 2), given([=] { return listed(of_cubes); })), [&] {
                       m->_random_samples = t[1].detach();
                       return m->forward_with_indices(t[0]);
                     }())));
  all.push_back(on_host(
      MODULE("FractionalMaxPool3dOfRatio",
             nn::FractionalMaxPool3d(Three(2).output_ratio(torch::ExpandingArray<3, double>(0.6))),
             joined(images(3, 2), given([=] { return listed(of_cubes); })), [&] {
               m->_random_samples = t[1].detach();
               return m->forward(t[0]);
             }())));
}

template <class Layer, class Options>
void add_padding(const std::string& name, size_t num_dims, Options options, ModuleCases& all) {
  const auto dims = static_cast<int64_t>(num_dims);
  all.push_back(MODULE(name + "Uneven", Layer(options), images(dims, 2), m->forward(t[0])));
  all.push_back(MODULE(name + "Unbatched", Layer(options), images(dims, 2, 0), m->forward(t[0])));
}

template <class Mode>
void add_resizing(const std::string& name, int64_t num_dims, Mode mode, bool has_corners,
                  ModuleCases& all) {
  const Sizes larger = {11, 9, 8};
  const Sizes smaller = {3, 4, 2};
  const auto cut = [&](const Sizes& sizes) {
    return Sizes(sizes.begin(), sizes.begin() + num_dims);
  };
  const std::vector<double> factors(static_cast<size_t>(num_dims), 1.6);
  for (const bool align : {false, true}) {
    if (align && !has_corners) continue;
    const auto add = [&](const std::string& form, nn::UpsampleOptions options) {
      options.mode(mode);
      if (has_corners) options.align_corners(align);
      const std::string full = name + form + (align ? "Aligned" : "");
      all.push_back(MODULE(full, nn::Upsample(options), images(num_dims, 2), m->forward(t[0])));
    };
    add("ToMore", nn::UpsampleOptions().size(cut(larger)));
    add("ToLess", nn::UpsampleOptions().size(cut(smaller)));
    add("ByFactor", nn::UpsampleOptions().scale_factor(factors));
  }
}

void add_interpolations(ModuleCases& all) {
  namespace F = torch::nn::functional;
  const auto plane = images(2, 2);
  const auto options = F::InterpolateFuncOptions().align_corners(false);
  const auto anti = F::InterpolateFuncOptions(options).antialias(true).size(Sizes{3, 4});
  const auto recomputed = F::InterpolateFuncOptions(options)
                              .mode(torch::kBilinear)
                              .recompute_scale_factor(true)
                              .scale_factor(std::vector<double>{1.6, 0.7});
  all.push_back(MODULE("InterpolateRecomputed", nn::Identity(), plane,
                       F::interpolate(m->forward(t[0]), recomputed)));
  all.push_back(on_host(MODULE(
      "InterpolateAntialiased", nn::Identity(), plane,
      F::interpolate(m->forward(t[0]), F::InterpolateFuncOptions(anti).mode(torch::kBilinear)))));
  all.push_back(on_host(MODULE(
      "InterpolateCubicAntialiased", nn::Identity(), plane,
      F::interpolate(m->forward(t[0]), F::InterpolateFuncOptions(anti).mode(torch::kBicubic)))));
  all.push_back(
      MODULE("InterpolateNearestExact", nn::Identity(), plane,
             F::interpolate(
                 t[0], F::InterpolateFuncOptions().mode(torch::kNearestExact).size(Sizes{8, 4}))));
  all.push_back(MODULE(
      "InterpolateByArea", nn::Identity(), plane,
      F::interpolate(t[0], F::InterpolateFuncOptions().mode(torch::kArea).size(Sizes{3, 4}))));
  all.push_back(MODULE("PadByMode", nn::Identity(), plane,
                       F::pad(t[0], F::PadFuncOptions({1, 2, 0, 3}).mode(torch::kCircular))));
  all.push_back(MODULE("PadNegative", nn::Identity(), plane,
                       F::pad(t[0], F::PadFuncOptions({-1, 2, 1, -2}).value(0.5))));
  const auto grid = joined(plane, inside({{2, 4, 3, 2}}));
  for (const bool align : {false, true}) {
    const auto sample = F::GridSampleFuncOptions().align_corners(align);
    const std::string corners = align ? "Aligned" : "";
    const auto add = [&](const std::string& form, F::GridSampleFuncOptions with) {
      all.push_back(on_host(MODULE("GridSample" + form + corners, nn::Identity(), grid,
                                   F::grid_sample(t[0], t[1] * 3 - 1.5, with))));
    };
    add("", sample);
    add("Border", F::GridSampleFuncOptions(sample).padding_mode(torch::kBorder));
    add("Reflection", F::GridSampleFuncOptions(sample).padding_mode(torch::kReflection));
    add("Nearest", F::GridSampleFuncOptions(sample).mode(torch::kNearest));
    all.push_back(MODULE("AffineGrid" + corners, nn::Identity(), drawn({{2, 2, 3}}),
                         F::affine_grid(t[0], {2, 2, 4, 3}, align)));
  }
}

}  // namespace

ModuleCases convolution_modules() {
  ModuleCases all;
  add_convolutions<nn::Conv1d, nn::Conv1dOptions, 1>("Conv1d", all);
  add_convolutions<nn::Conv2d, nn::Conv2dOptions, 2>("Conv2d", all);
  add_convolutions<nn::Conv3d, nn::Conv3dOptions, 3>("Conv3d", all);
  add_convolutions<nn::ConvTranspose1d, nn::ConvTranspose1dOptions, 1>("ConvTranspose1d", all);
  add_convolutions<nn::ConvTranspose2d, nn::ConvTranspose2dOptions, 2>("ConvTranspose2d", all);
  add_convolutions<nn::ConvTranspose3d, nn::ConvTranspose3dOptions, 3>("ConvTranspose3d", all);
  all.push_back(MODULE(
      "FoldPadded", nn::Fold(nn::FoldOptions({6, 7}, {2, 3}).stride(2).padding(1).dilation({1, 2})),
      drawn({{2, 12, 12}}), m->forward(t[0])));
  all.push_back(MODULE("FoldUnbatched", nn::Fold(nn::FoldOptions({4, 5}, {2, 2})),
                       drawn({{12, 12}}), m->forward(t[0])));
  all.push_back(MODULE("UnfoldPadded",
                       nn::Unfold(nn::UnfoldOptions({3, 2}).stride(2).padding(1).dilation({1, 2})),
                       images(2, 3), m->forward(t[0])));
  return all;
}

ModuleCases pooling_modules() {
  ModuleCases all;
  add_max_pools<nn::MaxPool1d, nn::MaxPool1dOptions, 1>("MaxPool1d", all);
  add_max_pools<nn::MaxPool2d, nn::MaxPool2dOptions, 2>("MaxPool2d", all);
  add_max_pools<nn::MaxPool3d, nn::MaxPool3dOptions, 3>("MaxPool3d", all);
  add_mean_pools<nn::AvgPool1d, nn::AvgPool1dOptions, 1>("AvgPool1d", all);
  add_mean_pools<nn::AvgPool2d, nn::AvgPool2dOptions, 2>("AvgPool2d", all);
  add_mean_pools<nn::AvgPool3d, nn::AvgPool3dOptions, 3>("AvgPool3d", all);
  add_power_pools<nn::LPPool1d, nn::LPPool1dOptions, 1>("LPPool1d", all);
  add_power_pools<nn::LPPool2d, nn::LPPool2dOptions, 2>("LPPool2d", all);
  add_power_pools<nn::LPPool3d, nn::LPPool3dOptions, 3>("LPPool3d", all);
  add_unpools<nn::MaxPool1d, nn::MaxPool1dOptions, nn::MaxUnpool1d, nn::MaxUnpool1dOptions, 1>(
      "MaxUnpool1d", all);
  add_unpools<nn::MaxPool2d, nn::MaxPool2dOptions, nn::MaxUnpool2d, nn::MaxUnpool2dOptions, 2>(
      "MaxUnpool2d", all);
  add_unpools<nn::MaxPool3d, nn::MaxPool3dOptions, nn::MaxUnpool3d, nn::MaxUnpool3dOptions, 3>(
      "MaxUnpool3d", all);
  add_adaptive_pools(all);
  add_fractional_pools(all);
  return all;
}

ModuleCases resizing_modules() {
  ModuleCases all;
  add_padding<nn::ReflectionPad1d>("ReflectionPad1d", 1, nn::ReflectionPad1dOptions({1, 3}), all);
  add_padding<nn::ReflectionPad2d>("ReflectionPad2d", 2, nn::ReflectionPad2dOptions({1, 3, 2, 0}),
                                   all);
  add_padding<nn::ReflectionPad3d>("ReflectionPad3d", 3,
                                   nn::ReflectionPad3dOptions({1, 3, 2, 0, 1, 2}), all);
  add_padding<nn::ReplicationPad1d>("ReplicationPad1d", 1, nn::ReplicationPad1dOptions({1, 9}),
                                    all);
  add_padding<nn::ReplicationPad2d>("ReplicationPad2d", 2,
                                    nn::ReplicationPad2dOptions({1, 3, 2, 0}), all);
  add_padding<nn::ReplicationPad3d>("ReplicationPad3d", 3,
                                    nn::ReplicationPad3dOptions({1, 3, 2, 0, 1, 2}), all);
  add_padding<nn::ZeroPad1d>("ZeroPad1d", 1, nn::ZeroPad1dOptions({1, 3}), all);
  add_padding<nn::ZeroPad2d>("ZeroPad2d", 2, nn::ZeroPad2dOptions({1, 3, 2, -1}), all);
  add_padding<nn::ZeroPad3d>("ZeroPad3d", 3, nn::ZeroPad3dOptions({1, 3, 2, 0, 1, 2}), all);
  add_padding<nn::ConstantPad1d>("ConstantPad1d", 1, nn::ConstantPad1dOptions({-1, 3}, 0.5), all);
  add_padding<nn::ConstantPad2d>("ConstantPad2d", 2, nn::ConstantPad2dOptions({1, 3, 2, 0}, 0.5),
                                 all);
  add_padding<nn::ConstantPad3d>("ConstantPad3d", 3,
                                 nn::ConstantPad3dOptions({1, 3, 2, 0, 1, 2}, 0.5), all);
  add_resizing("UpsampleNearest1d", 1, torch::kNearest, false, all);
  add_resizing("UpsampleNearest2d", 2, torch::kNearest, false, all);
  add_resizing("UpsampleNearest3d", 3, torch::kNearest, false, all);
  add_resizing("UpsampleLinear", 1, torch::kLinear, true, all);
  add_resizing("UpsampleBilinear", 2, torch::kBilinear, true, all);
  add_resizing("UpsampleBicubic", 2, torch::kBicubic, true, all);
  add_resizing("UpsampleTrilinear", 3, torch::kTrilinear, true, all);
  add_interpolations(all);
  all.push_back(
      MODULE("PixelShuffleByThree", nn::PixelShuffle(3), drawn({{2, 9, 2, 3}}), m->forward(t[0])));
  all.push_back(MODULE("PixelUnshuffleByThree", nn::PixelUnshuffle(3), drawn({{2, 2, 6, 3}}),
                       m->forward(t[0])));
  all.push_back(MODULE("ChannelShuffle", nn::Identity(), drawn({{2, 6, 2, 3}}),
                       at::channel_shuffle(t[0], 3)));
  return all;
}

}  // namespace levin::test
