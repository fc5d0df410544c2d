#include "levin/accelerator/compiled/module_options.h"

#include <torch/nn/modules.h>

#include <string_view>
#include <type_traits>

namespace levin::detail {
namespace {

namespace nn = torch::nn;

using Fingerprint = std::function<int64_t()>;

template <class... Parts>
int64_t fingerprint_of(const Parts&... parts) {
  size_t hash = 0;
  const auto add = [&](const auto& part) {
    const std::string_view bytes(reinterpret_cast<const char*>(&part), sizeof part);
    hash = hash * 31 + std::hash<std::string_view>()(bytes);
  };
  (add(parts), ...);
  return static_cast<int64_t>(hash);
}

/// Of options that are plain numbers.
template <class Layer>
Fingerprint fingerprint_of_layer(const nn::Module& module) {
  static_assert(std::is_trivially_copyable_v<decltype(Layer::options)>);
  const auto* layer = dynamic_cast<const Layer*>(&module);
  if (layer == nullptr) return nullptr;
  return [layer] { return fingerprint_of(layer->options); };
}

template <class... Layers>
Fingerprint first_of(const nn::Module& module) {
  Fingerprint found;
  ((found = fingerprint_of_layer<Layers>(module)) || ...);
  return found;
}

Fingerprint of_dropout_and_norms(const nn::Module& module) {
  if (const auto* layer = dynamic_cast<const nn::LayerNormImpl*>(&module)) {
    return [layer] { return fingerprint_of(layer->options.eps()); };
  }
  return first_of<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
                  nn::FeatureAlphaDropoutImpl, nn::BatchNorm1dImpl, nn::BatchNorm2dImpl,
                  nn::BatchNorm3dImpl, nn::InstanceNorm1dImpl, nn::InstanceNorm2dImpl,
                  nn::InstanceNorm3dImpl, nn::GroupNormImpl, nn::LocalResponseNormImpl,
                  nn::CrossMapLRN2dImpl>(module);
}

Fingerprint of_activations(const nn::Module& module) {
  return first_of<nn::ReLUImpl, nn::ReLU6Impl, nn::LeakyReLUImpl, nn::RReLUImpl, nn::PReLUImpl,
                  nn::ELUImpl, nn::SELUImpl, nn::CELUImpl, nn::GLUImpl, nn::HardshrinkImpl,
                  nn::HardtanhImpl, nn::SoftshrinkImpl, nn::SoftplusImpl, nn::ThresholdImpl,
                  nn::SoftmaxImpl, nn::SoftminImpl, nn::LogSoftmaxImpl>(module);
}

Fingerprint of_layers(const nn::Module& module) {
  return first_of<nn::MultiheadAttentionImpl, nn::LSTMImpl, nn::GRUImpl, nn::LinearImpl,
                  nn::BilinearImpl, nn::FlattenImpl, nn::CosineSimilarityImpl,
                  nn::PairwiseDistanceImpl>(module);
}

Fingerprint of_losses(const nn::Module& module) {
  if (const auto* loss = dynamic_cast<const nn::CrossEntropyLossImpl*>(&module)) {
    return [loss] {
      return fingerprint_of(loss->options.label_smoothing(), loss->options.ignore_index());
    };
  }
  return first_of<nn::L1LossImpl, nn::MSELossImpl, nn::SmoothL1LossImpl, nn::HuberLossImpl,
                  nn::KLDivLossImpl, nn::HingeEmbeddingLossImpl, nn::CosineEmbeddingLossImpl,
                  nn::MarginRankingLossImpl, nn::SoftMarginLossImpl, nn::TripletMarginLossImpl,
                  nn::CTCLossImpl, nn::PoissonNLLLossImpl>(module);
}

Fingerprint of_containers(const nn::Module& module) {
  if (const auto* list = dynamic_cast<const nn::SequentialImpl*>(&module)) {
    return [list] { return static_cast<int64_t>(list->size()); };
  }
  if (const auto* list = dynamic_cast<const nn::ModuleListImpl*>(&module)) {
    return [list] { return static_cast<int64_t>(list->size()); };
  }
  return nullptr;
}

}  // namespace

std::vector<ModuleOptions> options_of(const std::vector<std::shared_ptr<nn::Module>>& modules,
                                      const std::vector<std::string>& names) {
  std::vector<ModuleOptions> all;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (Fingerprint number = of_containers(*modules[i])) {
      const int64_t now = number();
      all.push_back({names[i], std::move(number), now});
      continue;
    }
    for (const auto& fingerprint_in :
         {of_dropout_and_norms, of_activations, of_layers, of_losses}) {
      if (Fingerprint fingerprint = fingerprint_in(*modules[i])) {
        all.push_back({names[i], std::move(fingerprint)});
        break;
      }
    }
  }
  return all;
}

}  // namespace levin::detail
