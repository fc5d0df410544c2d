#include "levin/module/layers/layers.h"

#include <c10/util/Type.h>
#include <torch/nn/modules.h>

#include <algorithm>

#include "levin/module/layers/layer_options.h"

namespace levin::detail {
namespace {

namespace nn = torch::nn;

/// "torch::nn::Conv2dImpl" reads Conv2d, "net::Net" Net.
std::string short_name(std::string name) {
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.ends_with("Impl")) name.erase(name.size() - 4);
  return name;
}

/// Another key, or another order, may come at the same length.
template <class T>
constexpr bool kIsDictionary =
    std::is_same_v<T, nn::ModuleDictImpl> || std::is_same_v<T, nn::ParameterDictImpl>;

template <class T>
int64_t fingerprint(const nn::Module& module) {
  OptionsHash hash;
  const auto& layer = static_cast<const T&>(module);
  if constexpr (kIsDictionary<T>) {
    for (const auto& item : layer) hash.add(item.key());
  } else {
    visit_layer(layer, [&](const char*, const auto& option) { hash.add(option); });
  }
  return hash.value();
}

template <class T>
Layer row(std::string_view python_file) {
  Layer layer{
      .name = short_name(c10::demangle(typeid(T).name())),
      .python_file = python_file,
      .type = &typeid(T),
      .is = [](const nn::Module& module) { return dynamic_cast<const T*>(&module) != nullptr; }};
  if constexpr (requires(T& layer) { layer.options; } || kIsDictionary<T>) {
    layer.fingerprint = fingerprint<T>;
  }
  if constexpr (requires(const T& layer) { layer.size(); }) {
    layer.num_children = [](const nn::Module& module) {
      return static_cast<int64_t>(static_cast<const T&>(module).size());
    };
  }
  return layer;
}

template <class... Layers>
void add(std::vector<Layer>& rows, std::string_view python_file) {
  (rows.push_back(row<Layers>(python_file)), ...);
}

std::vector<Layer> make_rows() {
  std::vector<Layer> rows;
  add<nn::ELUImpl, nn::SELUImpl, nn::HardshrinkImpl, nn::HardtanhImpl, nn::LeakyReLUImpl,
      nn::LogSigmoidImpl, nn::SoftmaxImpl, nn::SoftminImpl, nn::LogSoftmaxImpl, nn::Softmax2dImpl,
      nn::PReLUImpl, nn::ReLUImpl, nn::ReLU6Impl, nn::RReLUImpl, nn::CELUImpl, nn::GLUImpl,
      nn::GELUImpl, nn::SiLUImpl, nn::MishImpl, nn::SigmoidImpl, nn::SoftplusImpl,
      nn::SoftshrinkImpl, nn::SoftsignImpl, nn::TanhImpl, nn::TanhshrinkImpl, nn::ThresholdImpl,
      nn::MultiheadAttentionImpl>(rows, "activation");
  add<nn::AdaptiveLogSoftmaxWithLossImpl>(rows, "adaptive");
  add<nn::BatchNorm1dImpl, nn::BatchNorm2dImpl, nn::BatchNorm3dImpl>(rows, "batchnorm");
  // Python has no Functional.
  add<nn::SequentialImpl, nn::ModuleListImpl, nn::ModuleDictImpl, nn::ParameterListImpl,
      nn::ParameterDictImpl, nn::FunctionalImpl>(rows, "container");
  add<nn::Conv1dImpl, nn::Conv2dImpl, nn::Conv3dImpl, nn::ConvTranspose1dImpl,
      nn::ConvTranspose2dImpl, nn::ConvTranspose3dImpl>(rows, "conv");
  add<nn::CosineSimilarityImpl, nn::PairwiseDistanceImpl>(rows, "distance");
  add<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
      nn::FeatureAlphaDropoutImpl>(rows, "dropout");
  add<nn::FlattenImpl, nn::UnflattenImpl>(rows, "flatten");
  add<nn::FoldImpl, nn::UnfoldImpl>(rows, "fold");
  add<nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl, nn::InstanceNorm3dImpl>(rows, "instancenorm");
  add<nn::IdentityImpl, nn::LinearImpl, nn::BilinearImpl>(rows, "linear");
  add<nn::L1LossImpl, nn::KLDivLossImpl, nn::MSELossImpl, nn::BCELossImpl,
      nn::HingeEmbeddingLossImpl, nn::MultiMarginLossImpl, nn::CosineEmbeddingLossImpl,
      nn::SmoothL1LossImpl, nn::HuberLossImpl, nn::MultiLabelMarginLossImpl, nn::SoftMarginLossImpl,
      nn::MultiLabelSoftMarginLossImpl, nn::TripletMarginLossImpl,
      nn::TripletMarginWithDistanceLossImpl, nn::CTCLossImpl, nn::PoissonNLLLossImpl,
      nn::MarginRankingLossImpl, nn::NLLLossImpl, nn::CrossEntropyLossImpl,
      nn::BCEWithLogitsLossImpl>(rows, "loss");
  add<nn::LayerNormImpl, nn::GroupNormImpl, nn::LocalResponseNormImpl, nn::CrossMapLRN2dImpl>(
      rows, "normalization");
  add<nn::ReflectionPad1dImpl, nn::ReflectionPad2dImpl, nn::ReflectionPad3dImpl,
      nn::ReplicationPad1dImpl, nn::ReplicationPad2dImpl, nn::ReplicationPad3dImpl,
      nn::ZeroPad1dImpl, nn::ZeroPad2dImpl, nn::ZeroPad3dImpl, nn::ConstantPad1dImpl,
      nn::ConstantPad2dImpl, nn::ConstantPad3dImpl>(rows, "padding");
  add<nn::PixelShuffleImpl, nn::PixelUnshuffleImpl>(rows, "pixelshuffle");
  add<nn::AvgPool1dImpl, nn::AvgPool2dImpl, nn::AvgPool3dImpl, nn::MaxPool1dImpl, nn::MaxPool2dImpl,
      nn::MaxPool3dImpl, nn::AdaptiveMaxPool1dImpl, nn::AdaptiveMaxPool2dImpl,
      nn::AdaptiveMaxPool3dImpl, nn::AdaptiveAvgPool1dImpl, nn::AdaptiveAvgPool2dImpl,
      nn::AdaptiveAvgPool3dImpl, nn::MaxUnpool1dImpl, nn::MaxUnpool2dImpl, nn::MaxUnpool3dImpl,
      nn::FractionalMaxPool2dImpl, nn::FractionalMaxPool3dImpl, nn::LPPool1dImpl, nn::LPPool2dImpl,
      nn::LPPool3dImpl>(rows, "pooling");
  add<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl, nn::RNNCellImpl, nn::LSTMCellImpl, nn::GRUCellImpl>(
      rows, "rnn");
  add<nn::EmbeddingImpl, nn::EmbeddingBagImpl>(rows, "sparse");
  add<nn::TransformerImpl, nn::TransformerEncoderImpl, nn::TransformerDecoderImpl,
      nn::TransformerEncoderLayerImpl, nn::TransformerDecoderLayerImpl>(rows, "transformer");
  add<nn::UpsampleImpl>(rows, "upsampling");
  return rows;
}

}  // namespace

const std::vector<Layer>& layers() {
  static const std::vector<Layer> rows = make_rows();
  return rows;
}

const Layer* layer_of(const nn::Module& module) {
  auto found = std::ranges::find_if(
      layers(), [&](const Layer& layer) { return *layer.type == typeid(module); });
  if (found == layers().end()) {
    found = std::ranges::find_if(layers(), [&](const Layer& layer) { return layer.is(module); });
  }
  return found == layers().end() ? nullptr : &*found;
}

std::string class_name(const nn::Module& module) { return short_name(module.name()); }

std::vector<ModuleOptions> options_of(const std::vector<std::shared_ptr<nn::Module>>& modules,
                                      const std::vector<std::string>& names) {
  std::vector<ModuleOptions> all;
  for (size_t i = 0; i < modules.size(); ++i) {
    const nn::Module* module = modules[i].get();
    const Layer* layer = layer_of(*module);
    if (layer == nullptr) continue;
    if (layer->fingerprint != nullptr) all.push_back({names[i], module, layer->fingerprint});
    if (layer->num_children != nullptr) {
      all.push_back({names[i], module, layer->num_children, layer->num_children(*module)});
    }
  }
  return all;
}

}  // namespace levin::detail
