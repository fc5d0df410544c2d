#include "levin/module/layers/layers.h"

#include <c10/util/Type.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "levin/module/layers/layer_options.h"
#include "tests/support/places.h"

namespace levin {
namespace test_of_layers {

namespace fs = std::filesystem;
namespace nn = torch::nn;

using detail::Layer;
using Names = std::set<std::string>;

/// Calls visit with each line of LibTorch's headers below a folder of torch/nn.
void read_headers(const std::string& folder, const std::function<void(const std::string&)>& visit) {
  const fs::path root = test::torch_headers();
  for (const auto& entry : fs::recursive_directory_iterator(root / "nn" / folder)) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) visit(line);
  }
}

Names layers_in_headers() {
  static const std::regex kHolder(
      R"(^TORCH_MODULE\((\w+)\)|^class .*: public (?:torch::nn::)?ModuleHolder<(\w+)Impl>)");
  Names names;
  read_headers("modules", [&](const std::string& line) {
    std::smatch match;
    if (std::regex_search(line, match, kHolder)) names.insert(match[1].str() + match[2].str());
  });
  return names;
}

/// The names of options by their struct, "LinearOptions".
std::map<std::string, Names> options_in_headers() {
  static const std::regex kStruct(R"(^struct (?:TORCH_API )?(\w+) \{)");
  static const std::regex kOption(R"(^  TORCH_ARG\(.*, (\w+)\))");
  std::map<std::string, Names> options;
  std::string of;
  read_headers("options", [&](const std::string& line) {
    std::smatch match;
    if (std::regex_search(line, match, kStruct)) of = match[1];
    if (std::regex_search(line, match, kOption)) options[of].insert(match[1]);
  });
  return options;
}

/// "torch::nn::AvgPoolOptions<1ul>" is a struct AvgPoolOptions.
template <class Options>
std::string struct_of(const Options&) {
  std::string name = c10::demangle(typeid(Options).name());
  name.erase(std::min(name.find('<'), name.size()));
  return name.substr(name.rfind(':') + 1);
}

at::Tensor difference(const at::Tensor& left, const at::Tensor& right) { return left - right; }
at::Tensor product(const at::Tensor& left, const at::Tensor& right) { return left * right; }

template <class T>
T some() {
  if constexpr (std::is_default_constructible_v<T>)
    return T();
  else
    return T(1);  // an ExpandingArray
}

/// change() gives an option another value.
struct Changes {
  static void change(bool& flag) { flag = !flag; }
  static void change(int64_t& number) { ++number; }
  static void change(double& number) { number += 0.25; }
  static void change(std::string& text) { text += "x"; }
  static void change(at::Tensor& tensor) { tensor = torch::ones({2}); }
  static void change(nn::AnyModule& module) { module = nn::AnyModule(nn::Tanh()); }
  static void change(nn::TransformerEncoderLayer& layer) {
    layer = nn::TransformerEncoderLayer(4, 2);
  }
  static void change(nn::TransformerDecoderLayer& layer) {
    layer = nn::TransformerDecoderLayer(4, 2);
  }
  static void change(std::function<at::Tensor(const at::Tensor&)>& function) {
    function = [](const at::Tensor& tensor) { return tensor; };
  }
  static void change(std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& function) {
    function = function ? product : difference;
  }
  template <class T>
  static void change(std::optional<T>& value) {
    if (value)
      change(*value);
    else
      value = some<T>();
  }
  template <class T>
  static void change(std::vector<T>& values) {
    if (values.empty())
      values.push_back(T());
    else
      change(values.back());
  }
  template <size_t n, class T>
  static void change(torch::ExpandingArray<n, T>& values) {
    change(values->back());
  }
  template <class... Choices>
  static void change(std::variant<Choices...>& choice) {
    const size_t next = (choice.index() + 1) % sizeof...(Choices);
    size_t i = 0;
    ((i++ == next ? void(choice = some<Choices>()) : void()), ...);
  }
};

/// Removes the layers from those that are left to be looked at.
class Options : public testing::Test {
 protected:
  template <class T>
  void expect_guarded(nn::ModuleHolder<T>& holder) {
    T& layer = *holder;
    const Layer* row = detail::layer_of(layer);
    ASSERT_NE(row, nullptr);
    SCOPED_TRACE(row->name);
    left_.erase(row->name);
    ASSERT_NE(row->fingerprint, nullptr);
    Names names;
    detail::visit_options(layer.options, [&](const char* name, auto&) { names.insert(name); });
    EXPECT_EQ(names, in_headers_.at(struct_of(layer.options)));
    detail::visit_layer(layer, [&](const char* name, auto& option) {
      // An optional one is set, and then set to another value.
      for (int i = 0; i < 2; ++i) {
        const int64_t before = row->fingerprint(layer);
        EXPECT_EQ(row->fingerprint(layer), before) << name;
        Changes::change(option);
        EXPECT_NE(row->fingerprint(layer), before) << name;
      }
    });
  }

  const std::map<std::string, Names> in_headers_ = options_in_headers();
  Names left_;
};

TEST_F(Options, EachOfEachLayerChangesItsFingerprint) {
  for (const Layer& layer : detail::layers()) {
    if (layer.fingerprint != nullptr) left_.insert(layer.name);
  }
  const auto all = [&](auto... layers) { (expect_guarded(layers), ...); };
  all(nn::ELU(), nn::SELU(), nn::Hardshrink(), nn::Hardtanh(), nn::LeakyReLU(), nn::Softmax(1),
      nn::Softmin(1), nn::LogSoftmax(1), nn::PReLU(), nn::ReLU(), nn::ReLU6(), nn::RReLU(),
      nn::CELU(), nn::GLU(), nn::GELU(), nn::Softplus(), nn::Softshrink(), nn::Threshold(1, 1),
      nn::MultiheadAttention(4, 2));
  all(nn::AdaptiveLogSoftmaxWithLoss(nn::AdaptiveLogSoftmaxWithLossOptions(16, 6, {2, 4})));
  all(nn::BatchNorm1d(2), nn::BatchNorm2d(2), nn::BatchNorm3d(2), nn::InstanceNorm1d(2),
      nn::InstanceNorm2d(2), nn::InstanceNorm3d(2), nn::GroupNorm(2, 2), nn::LocalResponseNorm(2),
      nn::CrossMapLRN2d(2), nn::LayerNorm(nn::LayerNormOptions({2})));
  all(nn::Conv1d(2, 2, 3), nn::Conv2d(2, 2, 3), nn::Conv3d(2, 2, 3), nn::ConvTranspose1d(2, 2, 3),
      nn::ConvTranspose2d(2, 2, 3), nn::ConvTranspose3d(2, 2, 3));
  all(nn::CosineSimilarity(), nn::PairwiseDistance(), nn::Dropout(), nn::Dropout2d(),
      nn::Dropout3d(), nn::AlphaDropout(), nn::FeatureAlphaDropout());
  all(nn::Flatten(), nn::Unflatten(nn::UnflattenOptions(1, {1, 2})), nn::Fold(4, 2), nn::Unfold(2),
      nn::Linear(2, 2), nn::Bilinear(2, 2, 2), nn::PixelShuffle(2), nn::PixelUnshuffle(2),
      nn::Upsample());
  all(nn::L1Loss(), nn::KLDivLoss(), nn::MSELoss(), nn::BCELoss(), nn::HingeEmbeddingLoss(),
      nn::MultiMarginLoss(), nn::CosineEmbeddingLoss(), nn::SmoothL1Loss(), nn::HuberLoss(),
      nn::MultiLabelMarginLoss(), nn::SoftMarginLoss(), nn::MultiLabelSoftMarginLoss(),
      nn::TripletMarginLoss(), nn::TripletMarginWithDistanceLoss(), nn::CTCLoss(),
      nn::PoissonNLLLoss(), nn::MarginRankingLoss(), nn::NLLLoss(), nn::CrossEntropyLoss(),
      nn::BCEWithLogitsLoss());
  all(nn::ReflectionPad1d(1), nn::ReflectionPad2d(1), nn::ReflectionPad3d(1),
      nn::ReplicationPad1d(1), nn::ReplicationPad2d(1), nn::ReplicationPad3d(1), nn::ZeroPad1d(1),
      nn::ZeroPad2d(1), nn::ZeroPad3d(1), nn::ConstantPad1d(1, 1), nn::ConstantPad2d(1, 1),
      nn::ConstantPad3d(1, 1));
  all(nn::AvgPool1d(2), nn::AvgPool2d(2), nn::AvgPool3d(2), nn::MaxPool1d(2), nn::MaxPool2d(2),
      nn::MaxPool3d(2), nn::MaxUnpool1d(2), nn::MaxUnpool2d(2), nn::MaxUnpool3d(2),
      nn::AdaptiveMaxPool1d(2), nn::AdaptiveMaxPool2d(2), nn::AdaptiveMaxPool3d(2),
      nn::AdaptiveAvgPool1d(2), nn::AdaptiveAvgPool2d(2), nn::AdaptiveAvgPool3d(2),
      nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(1)),
      nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(2).output_size(1)), nn::LPPool1d(2, 2),
      nn::LPPool2d(2, 2), nn::LPPool3d(2, 2));
  all(nn::RNN(2, 2), nn::LSTM(2, 2), nn::GRU(2, 2), nn::RNNCell(2, 2), nn::LSTMCell(2, 2),
      nn::GRUCell(2, 2), nn::Embedding(4, 2), nn::EmbeddingBag(4, 2));
  const nn::TransformerEncoderLayer encoder_layer(4, 2);
  const nn::TransformerDecoderLayer decoder_layer(4, 2);
  all(encoder_layer, decoder_layer, nn::TransformerEncoder(encoder_layer, 1),
      nn::TransformerDecoder(decoder_layer, 1),
      nn::Transformer(nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(4)));
  // A test of their own has them.
  EXPECT_THAT(left_, testing::ElementsAre("ModuleDict", "ParameterDict"));
}

TEST(Layers, AreAllThatLibTorchHas) {
  Names names;
  for (const Layer& layer : detail::layers()) EXPECT_TRUE(names.insert(layer.name).second);
  EXPECT_EQ(names, layers_in_headers());
}

TEST(Layers, WithoutOptionsHaveNothingToLookAt) {
  Names without;
  for (const Layer& layer : detail::layers()) {
    if (layer.fingerprint == nullptr && layer.num_children == nullptr) without.insert(layer.name);
  }
  EXPECT_THAT(without,
              testing::ElementsAre("Functional", "Identity", "LogSigmoid", "Mish", "SiLU",
                                   "Sigmoid", "Softmax2d", "Softsign", "Tanh", "Tanhshrink"));
}

TEST(Layers, DictionariesHaveOtherKeysAtTheSameLength) {
  nn::ModuleDict modules;
  modules->update({{"a", nn::Tanh().ptr()}, {"b", nn::ReLU().ptr()}});
  nn::ParameterDict tensors;
  tensors->insert("a", torch::ones({1}));
  tensors->insert("b", torch::ones({1}));
  const auto expect_seen = [](nn::Module& dictionary, const std::function<void()>& exchange) {
    const Layer& row = *detail::layer_of(dictionary);
    const int64_t before = row.fingerprint(dictionary);
    exchange();
    EXPECT_NE(row.fingerprint(dictionary), before) << row.name;
    EXPECT_EQ(row.num_children(dictionary), 2) << row.name;
  };
  expect_seen(*modules, [&] {
    modules->pop("a");
    modules->update({{"c", nn::Tanh().ptr()}});
  });
  expect_seen(*tensors, [&] { tensors->insert("a", tensors->pop("a")); });
}

TEST(Layers, ContainersAreCounted) {
  nn::Sequential sequential{nn::Tanh()};
  nn::ModuleList list{nn::Tanh()};
  nn::ParameterList parameters;
  const std::vector<std::shared_ptr<nn::Module>> modules = {sequential.ptr(), list.ptr(),
                                                            parameters.ptr()};
  const auto options = detail::options_of(modules, {"sequential", "list", "parameters"});
  sequential->push_back(nn::ReLU());
  list->push_back(nn::ReLU());
  parameters->append(torch::ones({1}));
  ASSERT_EQ(options.size(), 3);
  for (const detail::ModuleOptions& each : options) {
    EXPECT_EQ(each.fingerprint(), each.num_children + 1) << each.of;
  }
}

TEST(Layers, TwoLambdasAreTwoDistances) {
  nn::TripletMarginWithDistanceLoss loss;
  const Layer& row = *detail::layer_of(*loss);
  loss->options.distance_function([](const at::Tensor& a, const at::Tensor& b) { return a - b; });
  const int64_t before = row.fingerprint(*loss);
  loss->options.distance_function([](const at::Tensor& a, const at::Tensor& b) { return a * b; });
  EXPECT_NE(row.fingerprint(*loss), before);
}

struct ScaledLinear : nn::LinearImpl {
  using LinearImpl::LinearImpl;
};
struct Net : nn::Module {};

TEST(Layers, DerivedClassesAreTheLayer) {
  EXPECT_EQ(detail::layer_of(ScaledLinear(2, 2))->name, "Linear");
  EXPECT_EQ(detail::layer_of(Net()), nullptr);
}

}  // namespace test_of_layers
}  // namespace levin
