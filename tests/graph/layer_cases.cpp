#include "tests/graph/layer_cases.h"

namespace levin::test {
namespace {

using at::Tensor;
using torch::kLong;
namespace nn = torch::nn;

/// Numbers of -1 and 1 only are labels.
bool is_label(const Tensor& input) { return input.eq(input.sign()).all().item<bool>(); }

Tensors tensors_of(const Tensor& tensor) { return {tensor}; }
template <class A, class B>
Tensors tensors_of(const std::tuple<A, B>& results) {
  Tensors all = tensors_of(std::get<0>(results));
  for (const Tensor& tensor : tensors_of(std::get<1>(results))) all.push_back(tensor);
  return all;
}

/// Inputs are drawn anew at each call; floating ones follow the dtype that the case is run in.
template <class Holder, class... Inputs>
Make layer(const char*, const Holder& make, const Inputs&... inputs) {
  return [=] {
    auto holder = make();
    return Layer{.module = holder.ptr(),
                 .forward =
                     [holder](const Tensors& in) mutable {
                       return [&]<size_t... Is>(std::index_sequence<Is...>) {
                         return tensors_of(holder->forward(in.at(Is)...));
                       }(std::make_index_sequence<sizeof...(Inputs)>());
                     },
                 .inputs = [=]() -> Tensors { return {inputs()...}; }};
  };
}

std::function<Tensor()> normal(std::vector<int64_t> sizes) {
  return [sizes] { return torch::randn(sizes); };
}
std::function<Tensor()> uniform(std::vector<int64_t> sizes) {
  return [sizes] { return torch::rand(sizes) * 0.8 + 0.1; };
}
std::function<Tensor()> indices(int64_t high, std::vector<int64_t> sizes) {
  return [=] { return torch::randint(high, sizes); };
}
std::function<Tensor()> signs(std::vector<int64_t> sizes) {
  return [sizes] { return torch::randint(2, sizes, torch::kFloat) * 2 - 1; };
}

#define LAYER(Type, ...)                                        \
  LayerCase {                                                   \
    #Type, layer(#Type, [] { return nn::Type(); }, __VA_ARGS__) \
  }
#define LAYER_OF(Name, Type, Options, ...)                            \
  LayerCase {                                                         \
    #Name, layer(#Name, [] { return nn::Type Options; }, __VA_ARGS__) \
  }

std::vector<LayerCase> activations() {
  const auto x = normal({3, 4, 5});
  return {LAYER(ELU, x),
          LAYER(SELU, x),
          LAYER(Hardshrink, x),
          LAYER(Hardtanh, x),
          LAYER(LeakyReLU, x),
          LAYER(LogSigmoid, x),
          LAYER_OF(Softmax, Softmax, (1), x),
          LAYER_OF(Softmin, Softmin, (1), x),
          LAYER_OF(LogSoftmax, LogSoftmax, (1), x),
          LAYER(Softmax2d, x),
          LAYER(PReLU, x),
          LAYER(ReLU, x),
          LAYER(ReLU6, x),
          LAYER(RReLU, x),
          LAYER(CELU, x),
          LAYER_OF(GLU, GLU, (1), x),
          LAYER(GELU, x),
          LAYER_OF(GELUTanh, GELU, (nn::GELUOptions().approximate("tanh")), x),
          LAYER(SiLU, x),
          LAYER(Mish, x),
          LAYER(Sigmoid, x),
          LAYER(Softplus, x),
          LAYER(Softshrink, x),
          LAYER(Softsign, x),
          LAYER(Tanh, x),
          LAYER(Tanhshrink, x),
          LAYER_OF(Threshold, Threshold, (0.1, 20), x),
          LAYER(Identity, x),
          LAYER_OF(ReLUInPlace, ReLU, (nn::ReLUOptions(true)), x),
          LAYER_OF(SELUInPlace, SELU, (nn::SELUOptions(true)), x)};
}

std::vector<LayerCase> linear_and_convolutions() {
  return {LAYER_OF(Linear, Linear, (5, 7), normal({4, 5})),
          LAYER_OF(LinearOf3d, Linear, (5, 7), normal({2, 3, 5})),
          LAYER_OF(Bilinear, Bilinear, (5, 4, 3), normal({6, 5}), normal({6, 4})),
          LAYER_OF(Conv1d, Conv1d, (nn::Conv1dOptions(3, 4, 3).padding(1)), normal({2, 3, 9})),
          LAYER_OF(Conv2d, Conv2d, (nn::Conv2dOptions(3, 4, 3).stride(2)), normal({2, 3, 9, 9})),
          LAYER_OF(Conv2dGroups, Conv2d, (nn::Conv2dOptions(4, 4, 3).groups(2).dilation(2)),
                   normal({2, 4, 9, 9})),
          LAYER_OF(Conv2dReflect, Conv2d,
                   (nn::Conv2dOptions(3, 4, 3).padding(1).padding_mode(torch::kReflect)),
                   normal({2, 3, 6, 6})),
          LAYER_OF(Conv3d, Conv3d, (3, 4, 3), normal({2, 3, 5, 5, 5})),
          LAYER_OF(ConvTranspose1d, ConvTranspose1d, (3, 4, 3), normal({2, 3, 9})),
          LAYER_OF(ConvTranspose2d, ConvTranspose2d,
                   (nn::ConvTranspose2dOptions(3, 4, 3).stride(2)), normal({2, 3, 5, 5})),
          LAYER_OF(ConvTranspose3d, ConvTranspose3d, (3, 4, 3), normal({2, 3, 4, 4, 4})),
          LAYER_OF(Unfold, Unfold, (3), normal({2, 3, 6, 6})),
          LAYER_OF(Fold, Fold, (nn::FoldOptions({4, 5}, {2, 2})), normal({2, 12, 12})),
          LAYER(Flatten, normal({2, 3, 4})),
          LAYER_OF(Unflatten, Unflatten, (nn::UnflattenOptions(1, {2, 3})), normal({4, 6}))};
}

std::vector<LayerCase> pools() {
  const auto row = normal({2, 3, 8});
  const auto plane = normal({2, 3, 8, 8});
  const auto cube = normal({2, 3, 6, 6, 6});
  return {
      LAYER_OF(AvgPool1d, AvgPool1d, (3), row),
      LAYER_OF(AvgPool2d, AvgPool2d, (3), plane),
      LAYER_OF(AvgPool3d, AvgPool3d, (2), cube),
      LAYER_OF(MaxPool1d, MaxPool1d, (3), row),
      LAYER_OF(MaxPool2d, MaxPool2d, (3), plane),
      LAYER_OF(MaxPool3d, MaxPool3d, (2), cube),
      LAYER_OF(AdaptiveAvgPool1d, AdaptiveAvgPool1d, (3), row),
      LAYER_OF(AdaptiveAvgPool2d, AdaptiveAvgPool2d, (nn::AdaptiveAvgPool2dOptions({3, 2})), plane),
      LAYER_OF(AdaptiveAvgPool2dTo1, AdaptiveAvgPool2d, (1), plane),
      LAYER_OF(AdaptiveAvgPool3d, AdaptiveAvgPool3d, (2), cube),
      LAYER_OF(AdaptiveMaxPool1d, AdaptiveMaxPool1d, (3), row),
      LAYER_OF(AdaptiveMaxPool2d, AdaptiveMaxPool2d, (nn::AdaptiveMaxPool2dOptions({3, 2})), plane),
      LAYER_OF(AdaptiveMaxPool3d, AdaptiveMaxPool3d, (2), cube),
      LAYER_OF(FractionalMaxPool2d, FractionalMaxPool2d,
               (nn::FractionalMaxPool2dOptions(2).output_size(4)), plane),
      LAYER_OF(FractionalMaxPool3d, FractionalMaxPool3d,
               (nn::FractionalMaxPool3dOptions(2).output_size(3)), cube),
      LAYER_OF(LPPool1d, LPPool1d, (nn::LPPool1dOptions(2, 3)), row),
      LAYER_OF(LPPool2d, LPPool2d, (nn::LPPool2dOptions(2, 3)), plane),
      LAYER_OF(LPPool3d, LPPool3d, (nn::LPPool3dOptions(2, 2)), cube),
      LAYER_OF(MaxUnpool1d, MaxUnpool1d, (2), normal({1, 1, 3}),
               ([] { return torch::tensor({{{0, 3, 5}}}, kLong); })),
      LAYER_OF(MaxUnpool2d, MaxUnpool2d, (2), normal({1, 1, 2, 2}),
               ([] { return torch::tensor({{{{0, 3}, {9, 14}}}}, kLong); })),
      LAYER_OF(MaxUnpool3d, MaxUnpool3d, (2), normal({1, 1, 1, 1, 2}),
               ([] { return torch::tensor({{{{{1, 7}}}}}, kLong); }))};
}

std::vector<LayerCase> norms_and_dropouts() {
  const auto plane = normal({3, 4, 5, 5});
  return {LAYER_OF(BatchNorm1d, BatchNorm1d, (4), normal({6, 4})),
          LAYER_OF(BatchNorm2d, BatchNorm2d, (4), plane),
          LAYER_OF(BatchNorm2dUntracked, BatchNorm2d,
                   (nn::BatchNorm2dOptions(4).track_running_stats(false)), plane),
          LAYER_OF(BatchNorm3d, BatchNorm3d, (4), normal({2, 4, 3, 3, 3})),
          LAYER_OF(InstanceNorm1d, InstanceNorm1d, (4), normal({2, 4, 6})),
          LAYER_OF(InstanceNorm2d, InstanceNorm2d,
                   (nn::InstanceNorm2dOptions(4).affine(true).track_running_stats(true)), plane),
          LAYER_OF(InstanceNorm3d, InstanceNorm3d, (4), normal({2, 4, 3, 3, 3})),
          LAYER_OF(LayerNorm, LayerNorm, (nn::LayerNormOptions({5})), plane),
          LAYER_OF(GroupNorm, GroupNorm, (2, 4), plane),
          LAYER_OF(LocalResponseNorm, LocalResponseNorm, (2), plane),
          LAYER_OF(CrossMapLRN2d, CrossMapLRN2d, (3), plane),
          LAYER(Dropout, plane),
          LAYER_OF(DropoutInPlace, Dropout, (nn::DropoutOptions(0.3).inplace(true)), plane),
          LAYER(Dropout2d, plane),
          LAYER(Dropout3d, normal({2, 3, 2, 2, 2})),
          LAYER(AlphaDropout, plane),
          LAYER(FeatureAlphaDropout, plane),
          LAYER_OF(CosineSimilarity, CosineSimilarity, (), normal({4, 6}), normal({4, 6})),
          LAYER_OF(PairwiseDistance, PairwiseDistance, (), normal({4, 6}), normal({4, 6}))};
}

std::vector<LayerCase> paddings_and_sizes() {
  const auto row = normal({2, 3, 5});
  const auto plane = normal({2, 3, 5, 5});
  const auto cube = normal({2, 3, 4, 4, 4});
  return {LAYER_OF(ReflectionPad1d, ReflectionPad1d, (2), row),
          LAYER_OF(ReflectionPad2d, ReflectionPad2d, (2), plane),
          LAYER_OF(ReflectionPad3d, ReflectionPad3d, (2), cube),
          LAYER_OF(ReplicationPad1d, ReplicationPad1d, (2), row),
          LAYER_OF(ReplicationPad2d, ReplicationPad2d, (2), plane),
          LAYER_OF(ReplicationPad3d, ReplicationPad3d, (2), cube),
          LAYER_OF(ZeroPad1d, ZeroPad1d, (2), row),
          LAYER_OF(ZeroPad2d, ZeroPad2d, (2), plane),
          LAYER_OF(ZeroPad3d, ZeroPad3d, (2), cube),
          LAYER_OF(ConstantPad1d, ConstantPad1d, (2, 3.5), row),
          LAYER_OF(ConstantPad2d, ConstantPad2d, (2, 3.5), plane),
          LAYER_OF(ConstantPad3d, ConstantPad3d, (2, 3.5), cube),
          LAYER_OF(UpsampleNearest, Upsample,
                   (nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})), plane),
          LAYER_OF(UpsampleBilinear, Upsample,
                   (nn::UpsampleOptions()
                        .size(std::vector<int64_t>{7, 8})
                        .mode(torch::kBilinear)
                        .align_corners(false)),
                   plane),
          LAYER_OF(UpsampleBicubic, Upsample,
                   (nn::UpsampleOptions()
                        .size(std::vector<int64_t>{7, 8})
                        .mode(torch::kBicubic)
                        .align_corners(true)),
                   plane),
          LAYER_OF(UpsampleTrilinear, Upsample,
                   (nn::UpsampleOptions()
                        .size(std::vector<int64_t>{5, 6, 7})
                        .mode(torch::kTrilinear)
                        .align_corners(true)),
                   cube),
          LAYER_OF(UpsampleLinear, Upsample,
                   (nn::UpsampleOptions()
                        .size(std::vector<int64_t>{7})
                        .mode(torch::kLinear)
                        .align_corners(true)),
                   row),
          LAYER_OF(PixelShuffle, PixelShuffle, (2), normal({2, 8, 3, 3})),
          LAYER_OF(PixelUnshuffle, PixelUnshuffle, (2), normal({2, 3, 6, 6}))};
}

std::vector<LayerCase> embeddings_and_recurrences() {
  const auto sequence = normal({5, 2, 4});
  const auto step = normal({3, 4});
  const auto tokens = indices(9, {3, 4});
  return {
      LAYER_OF(Embedding, Embedding, (nn::EmbeddingOptions(9, 4).padding_idx(1)), tokens),
      LAYER_OF(EmbeddingScaled, Embedding, (nn::EmbeddingOptions(9, 4).scale_grad_by_freq(true)),
               tokens),
      LAYER_OF(EmbeddingMaxNorm, Embedding, (nn::EmbeddingOptions(9, 4).max_norm(1.0)), tokens),
      LAYER_OF(EmbeddingBagMean, EmbeddingBag, (9, 4), tokens),
      LAYER_OF(EmbeddingBagSum, EmbeddingBag, (nn::EmbeddingBagOptions(9, 4).mode(torch::kSum)),
               tokens),
      LAYER_OF(EmbeddingBagMax, EmbeddingBag, (nn::EmbeddingBagOptions(9, 4).mode(torch::kMax)),
               tokens),
      LAYER_OF(RNN, RNN, (4, 3), sequence),
      LAYER_OF(RNNRelu, RNN, (nn::RNNOptions(4, 3).nonlinearity(torch::kReLU).num_layers(2)),
               sequence),
      LAYER_OF(LSTM, LSTM, (4, 3), sequence),
      LAYER_OF(
          LSTMDeep, LSTM,
          (nn::LSTMOptions(4, 3).num_layers(2).dropout(0.3).bidirectional(true).batch_first(true)),
          sequence),
      LAYER_OF(LSTMProjected, LSTM, (nn::LSTMOptions(4, 3).proj_size(2)), sequence),
      LAYER_OF(GRU, GRU, (4, 3), sequence),
      LAYER_OF(GRUDeep, GRU, (nn::GRUOptions(4, 3).num_layers(2).dropout(0.3).bidirectional(true)),
               sequence),
      LAYER_OF(RNNCell, RNNCell, (4, 3), step),
      LAYER_OF(LSTMCell, LSTMCell, (4, 3), step),
      LAYER_OF(GRUCell, GRUCell, (4, 3), step)};
}

Make self_attention() {
  return [] {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2).dropout(0.2));
    return Layer{.module = attention.ptr(),
                 .forward =
                     [attention](const Tensors& in) mutable {
                       return tensors_of(attention->forward(in[0], in[0], in[0]));
                     },
                 .inputs = []() -> Tensors { return {torch::randn({5, 3, 8})}; }};
  };
}

std::vector<LayerCase> transformers() {
  const auto source = normal({5, 2, 8});
  const auto target = normal({4, 2, 8});
  return {
      {"MultiheadAttention", self_attention()},
      LAYER_OF(MultiheadAttentionOfThree, MultiheadAttention,
               (nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6)), target, normal({5, 2, 6}),
               normal({5, 2, 6})),
      LAYER_OF(TransformerEncoderLayer, TransformerEncoderLayer,
               (nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16)), source),
      LAYER_OF(
          TransformerDecoderLayer, TransformerDecoderLayer,
          (nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16).activation(torch::kGELU)),
          target, source),
      LAYER_OF(TransformerEncoder, TransformerEncoder,
               (nn::TransformerEncoderOptions(
                   nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16), 2)),
               source),
      LAYER_OF(TransformerDecoder, TransformerDecoder,
               (nn::TransformerDecoderOptions(
                   nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(16), 2)),
               target, source),
      LAYER_OF(
          Transformer, Transformer,
          (nn::TransformerOptions(8, 2).num_encoder_layers(1).num_decoder_layers(1).dim_feedforward(
              16)),
          source, target)};
}

std::vector<LayerCase> losses() {
  const auto x = normal({4, 6});
  const auto classes = indices(6, {4});
  return {LAYER(L1Loss, x, x),
          LAYER(MSELoss, x, x),
          LAYER(SmoothL1Loss, x, x),
          LAYER(HuberLoss, x, x),
          LAYER(KLDivLoss, x, uniform({4, 6})),
          LAYER(BCELoss, uniform({4, 6}), uniform({4, 6})),
          LAYER(BCEWithLogitsLoss, x, uniform({4, 6})),
          LAYER(HingeEmbeddingLoss, x, signs({4, 6})),
          LAYER(MultiMarginLoss, x, classes),
          LAYER(CosineEmbeddingLoss, x, x, signs({4})),
          LAYER(MultiLabelMarginLoss, x, indices(6, {4, 6})),
          LAYER(SoftMarginLoss, x, signs({4, 6})),
          LAYER(MultiLabelSoftMarginLoss, x, uniform({4, 6})),
          LAYER(TripletMarginLoss, x, x, x),
          LAYER(TripletMarginWithDistanceLoss, x, x, x),
          LAYER(PoissonNLLLoss, x, uniform({4, 6})),
          LAYER(MarginRankingLoss, normal({4}), normal({4}), signs({4})),
          LAYER(NLLLoss, x, classes),
          LAYER(CrossEntropyLoss, x, classes),
          LAYER_OF(CrossEntropySmoothed, CrossEntropyLoss,
                   (nn::CrossEntropyLossOptions().label_smoothing(0.1)), x, classes),
          LAYER_OF(NLLLoss2d, NLLLoss, (), normal({2, 3, 4, 4}), indices(3, {2, 4, 4})),
          LAYER(CTCLoss, normal({6, 2, 5}), ([] { return torch::randint(1, 5, {2, 3}); }),
                ([] { return torch::tensor({6, 5}, kLong); }),
                ([] { return torch::tensor({3, 2}, kLong); }))};
}

}  // namespace

std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> all;
  for (const auto& group :
       {activations(), linear_and_convolutions(), pools(), norms_and_dropouts(),
        paddings_and_sizes(), embeddings_and_recurrences(), transformers(), losses()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

std::vector<bool> labels_of(const Tensors& inputs) {
  std::vector<bool> are_labels;
  for (const Tensor& input : inputs) {
    are_labels.push_back(!input.is_floating_point() || is_label(input));
  }
  return are_labels;
}

Tensors forward_and_backward(const Layer& layer, const Tensors& inputs,
                             const std::vector<bool>& are_labels) {
  Tensors leaves;
  Tensors given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(inputs[i].detach());
    if (are_labels[i]) continue;
    // Layers that work in place are given no leaf.
    leaves.push_back(given.back().requires_grad_());
    given.back() = leaves.back() * 1;
  }
  for (const Tensor& parameter : layer.module->parameters()) leaves.push_back(parameter);
  Tensors results = layer.forward(given);
  Tensor loss;
  for (const Tensor& result : results) {
    if (!result.requires_grad()) continue;
    const Tensor part = (result * result).sum() + result.sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (!loss.defined()) return results;
  const Tensors gradients = torch::autograd::grad({loss}, leaves, {}, {}, false, true);
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}

}  // namespace levin::test
