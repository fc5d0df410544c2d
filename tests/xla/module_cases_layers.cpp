// Norms, dropouts, activations, embeddings, losses.
#include "tests/xla/module_cases.h"

namespace levin::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;

template <class Layer, class Options>
void add_batch_norms(const std::string& name, std::vector<int64_t> sizes, ModuleCases& all) {
  const auto add = [&](const std::string& form, Options options) {
    all.push_back(MODULE(name + form, Layer(options), drawn({sizes}), m->forward(t[0])));
  };
  const Options plain(4);
  add("", plain);
  add("WithoutWeights", Options(plain).affine(false));
  add("Untracked", Options(plain).track_running_stats(false));
  add("UntrackedWithoutWeights", Options(plain).track_running_stats(false).affine(false));
  add("OfAllSteps", Options(plain).momentum(std::nullopt).eps(0.1));
  add("OfLastStep", Options(plain).momentum(1.0));
}

template <class Layer, class Options>
void add_instance_norms(const std::string& name, std::vector<int64_t> sizes, ModuleCases& all) {
  const auto add = [&](const std::string& form, Options options) {
    all.push_back(MODULE(name + form, Layer(options), drawn({sizes}), m->forward(t[0])));
  };
  add("", Options(4));
  add("Weights", Options(4).affine(true));
  add("Tracked", Options(4).track_running_stats(true).momentum(0.3));
  add("TrackedWeights", Options(4).affine(true).track_running_stats(true).eps(0.1));
}

void add_dropouts(ModuleCases& all) {
  const auto plane = drawn({{2, 3, 4, 4}});
  const auto cube = drawn({{2, 3, 2, 2, 2}});
  for (const double p : {0.0, 1.0, 0.3}) {
    for (const bool in_place : {false, true}) {
      const std::string form = (p == 0   ? "OfNone"
                                : p == 1 ? "OfAll"
                                         : "OfSome") +
                               std::string(in_place ? "InPlace" : "");
      const auto options = nn::DropoutOptions(p).inplace(in_place);
      for (ModuleCase& of : ModuleCases{
               MODULE("Dropout" + form, nn::Dropout(options), plane, m->forward(t[0])),
               MODULE("Dropout2d" + form, nn::Dropout2d(options), plane, m->forward(t[0])),
               MODULE("Dropout3d" + form, nn::Dropout3d(options), cube, m->forward(t[0])),
               MODULE("AlphaDropout" + form, nn::AlphaDropout(options), plane, m->forward(t[0])),
               MODULE("FeatureAlphaDropout" + form, nn::FeatureAlphaDropout(options), plane,
                      m->forward(t[0]))}) {
        of.is_random = p > 0 && p < 1;
        all.push_back(std::move(of));
      }
    }
  }
}

void add_bags(const std::string& name, nn::EmbeddingBagMode mode, bool is_sum, ModuleCases& all) {
  const auto tokens = places_below(9, {3, 4});
  const auto ragged = joined(places_below(9, {7}),
                             given([] { return listed(torch::tensor({0, 2, 2, 5}, at::kLong)); }));
  const auto options = nn::EmbeddingBagOptions(9, 4).mode(mode);
  const auto add = [&](const std::string& form, nn::EmbeddingBagOptions with) {
    all.push_back(MODULE(name + form, nn::EmbeddingBag(with), tokens, m->forward(t[0])));
    all.push_back(
        MODULE(name + form + "Ragged", nn::EmbeddingBag(with), ragged, m->forward(t[0], t[1])));
  };
  add("", options);
  add("Padding", nn::EmbeddingBagOptions(options).padding_idx(2));
  add("MaxNorm", nn::EmbeddingBagOptions(options).max_norm(1.0).norm_type(1));
  add("MaxNormOfTwo", nn::EmbeddingBagOptions(options).max_norm(0.8));
  all.push_back(MODULE(name + "WithEnd",
                       nn::EmbeddingBag(nn::EmbeddingBagOptions(options).include_last_offset(true)),
                       joined(places_below(9, {7}),
                              given([] { return listed(torch::tensor({0, 2, 5, 7}, at::kLong)); })),
                       m->forward(t[0], t[1])));
  all.push_back(MODULE(name + "OfManyRows",
                       nn::EmbeddingBag(nn::EmbeddingBagOptions(40, 4).mode(mode).padding_idx(3)),
                       places_below(40, {3, 4}), m->forward(t[0])));
  if (is_sum) {
    add("Sparse", nn::EmbeddingBagOptions(options).sparse(true));
    all.push_back(MODULE("EmbeddingBagMeanSparse",
                         nn::EmbeddingBag(nn::EmbeddingBagOptions(9, 4).sparse(true)), tokens,
                         m->forward(t[0])));
  }
  all.push_back(
      MODULE(name + "OfInt32", nn::EmbeddingBag(options), tokens, m->forward(t[0].to(at::kInt))));
  if (!std::holds_alternative<torch::enumtype::kMax>(mode)) {
    // Each row once: of others the CPU divides by the counts of other rows (LibTorch 2.13).
    all.push_back(
        MODULE(name + "ByFrequency",
               nn::EmbeddingBag(nn::EmbeddingBagOptions(options).scale_grad_by_freq(true)),
               given([] { return listed(torch::arange(9).view({3, 3})); }), m->forward(t[0])));
  }
  if (!is_sum) return;
  all.push_back(MODULE(name + "WeighedPadding",
                       nn::EmbeddingBag(nn::EmbeddingBagOptions(options).padding_idx(2)),
                       joined(tokens, drawn({{3, 4}})), m->forward(t[0], {}, t[1])));
  all.push_back(MODULE(name + "WeighedWithEnd",
                       nn::EmbeddingBag(nn::EmbeddingBagOptions(options).include_last_offset(true)),
                       joined(joined(places_below(9, {7}), given([] {
                                       return listed(torch::tensor({0, 2, 5, 7}, at::kLong));
                                     })),
                              drawn({{7}})),
                       m->forward(t[0], t[1], t[2])));
  all.push_back(MODULE(name + "Weighed", nn::EmbeddingBag(options), joined(tokens, drawn({{3, 4}})),
                       m->forward(t[0], {}, t[1])));
  all.push_back(MODULE(name + "WeighedRagged", nn::EmbeddingBag(options),
                       joined(ragged, drawn({{7}})), m->forward(t[0], t[1], t[2])));
}

/// A layer moves the tensor that it is given when it is moved itself: each gets one of its own.
template <class Options>
Options with_own_weight(Options options) {
  if constexpr (requires { options.weight(); }) {
    if (options.weight().defined()) options.weight(options.weight().clone());
  }
  return options;
}

template <class Layer, class Options>
void add_loss(const std::string& name, const Options& options,
              const std::function<OperatorTensors()>& inputs, ModuleCases& all) {
  const auto add = [&](const std::string& form, const auto& reduction) {
    all.push_back(
        MODULE(name + form, Layer(with_own_weight(options).reduction(reduction)), inputs, [&] {
          if constexpr (requires { m->forward(t[0], t[1], t[2]); }) {
            return m->forward(t[0], t[1], t[2]);
          } else {
            return m->forward(t[0], t[1]);
          }
        }()));
  };
  add("OfEach", torch::kNone);
  add("Mean", torch::kMean);
  add("Sum", torch::kSum);
}

/// Losses that have a weight for each class take it to the device as buffer or by hand.
#define WEIGHED(name, holder, inputs, ...)                              \
  MODULE(name, holder, inputs, [&] {                                    \
    m->options.weight(torch::linspace(0.5, 1.5, 6).to(t[0].options())); \
    return m->forward(__VA_ARGS__);                                     \
  }())

}  // namespace

ModuleCases norm_modules() {
  ModuleCases all;
  add_batch_norms<nn::BatchNorm1d, nn::BatchNorm1dOptions>("BatchNorm1d", {6, 4}, all);
  add_batch_norms<nn::BatchNorm1d, nn::BatchNorm1dOptions>("BatchNorm1dOfRows", {3, 4, 5}, all);
  add_batch_norms<nn::BatchNorm2d, nn::BatchNorm2dOptions>("BatchNorm2d", {3, 4, 3, 2}, all);
  add_batch_norms<nn::BatchNorm3d, nn::BatchNorm3dOptions>("BatchNorm3d", {2, 4, 3, 2, 2}, all);
  add_instance_norms<nn::InstanceNorm1d, nn::InstanceNorm1dOptions>("InstanceNorm1d", {2, 4, 5},
                                                                    all);
  add_instance_norms<nn::InstanceNorm1d, nn::InstanceNorm1dOptions>("InstanceNorm1dUnbatched",
                                                                    {4, 5}, all);
  add_instance_norms<nn::InstanceNorm2d, nn::InstanceNorm2dOptions>("InstanceNorm2d", {2, 4, 3, 2},
                                                                    all);
  add_instance_norms<nn::InstanceNorm2d, nn::InstanceNorm2dOptions>("InstanceNorm2dUnbatched",
                                                                    {4, 3, 2}, all);
  add_instance_norms<nn::InstanceNorm3d, nn::InstanceNorm3dOptions>("InstanceNorm3dUnbatched",
                                                                    {4, 3, 2, 2}, all);
  add_instance_norms<nn::InstanceNorm3d, nn::InstanceNorm3dOptions>("InstanceNorm3d",
                                                                    {2, 4, 3, 2, 2}, all);
  const auto plane = drawn({{2, 4, 3, 5}});
  using Lay = nn::LayerNormOptions;
  for (ModuleCase& of : ModuleCases{
           MODULE("LayerNormOfPlanes", nn::LayerNorm(Lay({3, 5})), plane, m->forward(t[0])),
           MODULE("LayerNormWithoutWeights", nn::LayerNorm(Lay({5}).elementwise_affine(false)),
                  plane, m->forward(t[0])),
           MODULE("LayerNormEps", nn::LayerNorm(Lay({4, 3, 5}).eps(0.1)), plane, m->forward(t[0])),
           MODULE("GroupNormOfOne", nn::GroupNorm(1, 4), plane, m->forward(t[0])),
           MODULE("GroupNormOfEach", nn::GroupNorm(4, 4), plane, m->forward(t[0])),
           MODULE("GroupNormWithoutWeights",
                  nn::GroupNorm(nn::GroupNormOptions(2, 4).affine(false).eps(0.1)), plane,
                  m->forward(t[0])),
           MODULE("GroupNormOfRows", nn::GroupNorm(2, 4), drawn({{3, 4}}), m->forward(t[0])),
           MODULE("GroupNormOfSequences", nn::GroupNorm(2, 4), drawn({{3, 4, 5}}),
                  m->forward(t[0])),
           MODULE("GroupNormOfCubes", nn::GroupNorm(2, 4), drawn({{2, 4, 3, 2, 2}}),
                  m->forward(t[0])),
           MODULE("LocalResponseNormOfCubes",
                  nn::LocalResponseNorm(nn::LocalResponseNormOptions(3).alpha(0.1)),
                  drawn({{2, 4, 3, 2, 2}}), m->forward(t[0])),
           MODULE("LocalResponseNorm",
                  nn::LocalResponseNorm(nn::LocalResponseNormOptions(3).alpha(0.1).beta(0.5).k(2)),
                  plane, m->forward(t[0])),
           MODULE("LocalResponseNormOfRows",
                  nn::LocalResponseNorm(nn::LocalResponseNormOptions(2).alpha(0.1)),
                  drawn({{2, 4, 5}}), m->forward(t[0])),
           MODULE("CrossMapLRN2d",
                  nn::CrossMapLRN2d(nn::CrossMapLRN2dOptions(3).alpha(0.1).beta(0.5).k(2)), plane,
                  m->forward(t[0])),
           MODULE("NormalizeOfOne", nn::Identity(), plane,
                  torch::nn::functional::normalize(
                      t[0], torch::nn::functional::NormalizeFuncOptions().p(1).dim(2)))}) {
    all.push_back(std::move(of));
  }
  add_dropouts(all);
  return all;
}

ModuleCases activation_modules() {
  const auto x = drawn({{3, 4, 5}});
  const auto two = drawn({{4, 6}, {4, 6}});
  ModuleCases all = {
      MODULE("ELU", nn::ELU(nn::ELUOptions().alpha(0.3)), x, m->forward(t[0])),
      MODULE("ELUInPlace", nn::ELU(nn::ELUOptions().inplace(true)), x, m->forward(t[0])),
      MODULE("Hardshrink", nn::Hardshrink(0.8), x, m->forward(t[0])),
      MODULE("Hardtanh", nn::Hardtanh(nn::HardtanhOptions().min_val(-0.3).max_val(2)), x,
             m->forward(t[0])),
      MODULE("HardtanhInPlace", nn::Hardtanh(nn::HardtanhOptions().inplace(true)), x,
             m->forward(t[0])),
      MODULE("LeakyReLU", nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.3)), x,
             m->forward(t[0])),
      MODULE("LeakyReLUInPlace", nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)), x,
             m->forward(t[0])),
      MODULE("SoftmaxOfTheFirst", nn::Softmax(0), x, m->forward(t[0])),
      MODULE("LogSoftmaxOfTheLast", nn::LogSoftmax(-1), x, m->forward(t[0])),
      MODULE("SoftmaxOfAType", nn::Identity(), x,
             torch::nn::functional::softmax(
                 t[0], torch::nn::functional::SoftmaxFuncOptions(1).dtype(at::kDouble))),
      MODULE("Softmax2dOfABatch", nn::Softmax2d(), drawn({{2, 3, 4, 2}}), m->forward(t[0])),
      MODULE("PReLUOfChannels", nn::PReLU(nn::PReLUOptions().num_parameters(4).init(0.1)), x,
             m->forward(t[0])),
      MODULE("ReLU6InPlace", nn::ReLU6(nn::ReLU6Options(true)), x, m->forward(t[0])),
      MODULE("CELU", nn::CELU(nn::CELUOptions().alpha(0.3)), x, m->forward(t[0])),
      MODULE("CELUInPlace", nn::CELU(nn::CELUOptions().inplace(true)), x, m->forward(t[0])),
      MODULE("GLUOfTheFirst", nn::GLU(0), drawn({{4, 3}}), m->forward(t[0])),
      MODULE("Softplus", nn::Softplus(nn::SoftplusOptions().beta(2).threshold(1)), x,
             m->forward(t[0])),
      MODULE("Softshrink", nn::Softshrink(1.2), x, m->forward(t[0])),
      MODULE("ThresholdInPlace", nn::Threshold(nn::ThresholdOptions(0.2, -3).inplace(true)), x,
             m->forward(t[0])),
      random_in_training(MODULE("RReLU", nn::RReLU(nn::RReLUOptions().lower(0.2).upper(0.6)), x,
                                m->forward(t[0]))),
      MODULE("RReLUOfOneSlope", nn::RReLU(nn::RReLUOptions().lower(0.2).upper(0.2)), x,
             m->forward(t[0])),
      MODULE("LinearWithoutBias", nn::Linear(nn::LinearOptions(5, 3).bias(false)), x,
             m->forward(t[0])),
      MODULE("LinearOfARow", nn::Linear(5, 3), drawn({{5}}), m->forward(t[0])),
      MODULE("LinearOfNoRow", nn::Linear(5, 3), drawn({{0, 5}}), m->forward(t[0])),
      MODULE("BilinearWithoutBias", nn::Bilinear(nn::BilinearOptions(5, 4, 3).bias(false)),
             drawn({{2, 3, 5}, {2, 3, 4}}), m->forward(t[0], t[1])),
      MODULE("FlattenInTheMiddle", nn::Flatten(nn::FlattenOptions().start_dim(0).end_dim(1)), x,
             m->forward(t[0])),
      MODULE("UnflattenTheLast", nn::Unflatten(nn::UnflattenOptions(-1, {5, 1})), x,
             m->forward(t[0])),
      MODULE("CosineSimilarity",
             nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(0).eps(0.1)), two,
             m->forward(t[0], t[1])),
      MODULE("PairwiseDistance",
             nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(3).keepdim(true)), two,
             m->forward(t[0], t[1])),
      MODULE("PairwiseDistanceOfOne", nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(1)), two,
             m->forward(t[0], t[1])),
      MODULE("Sequential", nn::Sequential(nn::Linear(5, 4), nn::Tanh(), nn::Linear(4, 2)), x,
             m->forward(t[0]))};
  return all;
}

ModuleCases embedding_modules() {
  const auto tokens = places_below(9, {3, 4});
  using Options = nn::EmbeddingOptions;
  ModuleCases all = {
      MODULE("EmbeddingOfAPlace", nn::Embedding(9, 4), places_below(9, {}), m->forward(t[0])),
      MODULE("EmbeddingOfInt32", nn::Embedding(9, 4), tokens, m->forward(t[0].to(at::kInt))),
      MODULE("EmbeddingOfNone", nn::Embedding(9, 4), places_below(9, {0, 4}), m->forward(t[0])),
      MODULE("EmbeddingOfManyRows", nn::Embedding(Options(60, 4).padding_idx(59)),
             places_below(60, {3, 4}), m->forward(t[0])),
      MODULE("EmbeddingPaddingFromTheEnd", nn::Embedding(Options(9, 4).padding_idx(-2)), tokens,
             m->forward(t[0])),
      MODULE("EmbeddingNormOfOne", nn::Embedding(Options(9, 4).max_norm(1.5).norm_type(1)), tokens,
             m->forward(t[0])),
      MODULE("EmbeddingNormOfThree", nn::Embedding(Options(9, 4).max_norm(0.7).norm_type(3)),
             tokens, m->forward(t[0])),
      MODULE("EmbeddingMaxNormPadded", nn::Embedding(Options(9, 4).max_norm(0.8).padding_idx(1)),
             tokens, m->forward(t[0])),
      MODULE("EmbeddingByFrequencyPadded",
             nn::Embedding(Options(9, 4).scale_grad_by_freq(true).padding_idx(1)), tokens,
             m->forward(t[0])),
      MODULE("EmbeddingSparse", nn::Embedding(Options(9, 4).sparse(true).padding_idx(1)), tokens,
             m->forward(t[0])),
      MODULE("EmbeddingFrozen",
             nn::Embedding::from_pretrained(torch::linspace(0, 1, 36).view({9, 4})), tokens,
             m->forward(t[0]))};
  add_bags("EmbeddingBagSum", torch::kSum, true, all);
  add_bags("EmbeddingBagMean", torch::kMean, false, all);
  add_bags("EmbeddingBagMax", torch::kMax, false, all);
  return all;
}

ModuleCases loss_modules() {
  ModuleCases all;
  const auto two = drawn({{4, 6}, {4, 6}});
  const auto shares = inside({{4, 6}, {4, 6}});
  const auto scores_and_shares = joined(drawn({{4, 6}}), inside({{4, 6}}));
  const auto classes = joined(drawn({{4, 6}}), places_below(6, {4}));
  add_loss<nn::L1Loss>("L1Loss", nn::L1LossOptions(), two, all);
  add_loss<nn::MSELoss>("MSELoss", nn::MSELossOptions(), two, all);
  add_loss<nn::SmoothL1Loss>("SmoothL1LossBeta", nn::SmoothL1LossOptions().beta(0.4), two, all);
  add_loss<nn::SmoothL1Loss>("SmoothL1LossOfNoBeta", nn::SmoothL1LossOptions().beta(0), two, all);
  add_loss<nn::HuberLoss>("HuberLossDelta", nn::HuberLossOptions().delta(0.4), two, all);
  add_loss<nn::KLDivLoss>("KLDivLoss", nn::KLDivLossOptions(), scores_and_shares, all);
  add_loss<nn::KLDivLoss>("KLDivLossOfLog", nn::KLDivLossOptions().log_target(true),
                          scores_and_shares, all);
  all.push_back(MODULE("KLDivLossOfBatch",
                       nn::KLDivLoss(nn::KLDivLossOptions().reduction(torch::kBatchMean)),
                       scores_and_shares, m->forward(t[0], t[1])));
  add_loss<nn::BCELoss>("BCELoss", nn::BCELossOptions(), shares, all);
  all.push_back(WEIGHED("BCELossWeighed", nn::BCELoss(), shares, t[0], t[1]));
  add_loss<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", nn::BCEWithLogitsLossOptions(),
                                  scores_and_shares, all);
  // Its weights are buffers: they go where the module goes.
  const Tensor weights = torch::linspace(0.5, 1.5, 6);
  all.push_back(
      MODULE("BCEWithLogitsLossWeighed",
             nn::BCEWithLogitsLoss(
                 nn::BCEWithLogitsLossOptions().weight(weights.clone()).pos_weight(weights + 1)),
             scores_and_shares, m->forward(t[0], t[1])));
  for (const double margin : {0.5, 2.0}) {
    const std::string form = margin == 2.0 ? "Wide" : "";
    add_loss<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss" + form,
                                     nn::HingeEmbeddingLossOptions().margin(margin),
                                     joined(drawn({{4, 6}}), signs_of({4, 6})), all);
    add_loss<nn::CosineEmbeddingLoss>("CosineEmbeddingLoss" + form,
                                      nn::CosineEmbeddingLossOptions().margin(margin - 1),
                                      joined(two, signs_of({4})), all);
    add_loss<nn::MarginRankingLoss>("MarginRankingLoss" + form,
                                    nn::MarginRankingLossOptions().margin(margin),
                                    joined(drawn({{4}, {4}}), signs_of({4})), all);
  }
  add_loss<nn::MultiMarginLoss>("MultiMarginLoss", nn::MultiMarginLossOptions(), classes, all);
  add_loss<nn::MultiMarginLoss>("MultiMarginLossSquared",
                                nn::MultiMarginLossOptions().p(2).margin(0.5), classes, all);
  all.push_back(
      MODULE("MultiMarginLossWeighed",
             nn::MultiMarginLoss(nn::MultiMarginLossOptions().p(2).weight(weights.clone())),
             classes, m->forward(t[0], t[1])));
  add_loss<nn::MultiLabelMarginLoss>(
      "MultiLabelMarginLoss", nn::MultiLabelMarginLossOptions(),
      joined(drawn({{2, 4}}), given([] {
               return listed(torch::tensor({{3, 0, -1, 1}, {2, -1, 0, 0}}, at::kLong));
             })),
      all);
  add_loss<nn::SoftMarginLoss>("SoftMarginLoss", nn::SoftMarginLossOptions(),
                               joined(drawn({{4, 6}}), signs_of({4, 6})), all);
  add_loss<nn::MultiLabelSoftMarginLoss>(
      "MultiLabelSoftMarginLoss", nn::MultiLabelSoftMarginLossOptions(), scores_and_shares, all);
  all.push_back(WEIGHED("MultiLabelSoftMarginLossWeighed", nn::MultiLabelSoftMarginLoss(),
                        scores_and_shares, t[0], t[1]));
  const auto three = drawn({{4, 6}, {4, 6}, {4, 6}});
  add_loss<nn::TripletMarginLoss>("TripletMarginLoss", nn::TripletMarginLossOptions(), three, all);
  add_loss<nn::TripletMarginLoss>(
      "TripletMarginLossSwapped",
      nn::TripletMarginLossOptions().swap(true).p(1).margin(3).eps(1e-3), three, all);
  add_loss<nn::TripletMarginWithDistanceLoss>(
      "TripletMarginWithDistanceLoss",
      nn::TripletMarginWithDistanceLossOptions().swap(true).distance_function(
          [](const Tensor& a, const Tensor& b) { return (a - b).abs().amax(1); }),
      three, all);
  add_loss<nn::PoissonNLLLoss>("PoissonNLLLoss", nn::PoissonNLLLossOptions(), scores_and_shares,
                               all);
  add_loss<nn::PoissonNLLLoss>(
      "PoissonNLLLossFull", nn::PoissonNLLLossOptions().log_input(false).full(true),
      joined(inside({{4, 6}}), given([] { return listed(torch::rand({4, 6}, at::kDouble) * 4); })),
      all);
  add_loss<nn::NLLLoss>("NLLLoss", nn::NLLLossOptions(), classes, all);
  all.push_back(MODULE("NLLLossWeighed",
                       nn::NLLLoss(nn::NLLLossOptions().weight(weights.clone()).ignore_index(2)),
                       classes, m->forward(t[0], t[1])));
  const auto pictures = joined(drawn({{2, 6, 3, 2}}), places_below(6, {2, 3, 2}));
  all.push_back(MODULE("NLLLoss2dWeighed",
                       nn::NLLLoss(nn::NLLLossOptions().weight(weights.clone()).ignore_index(0)),
                       pictures, m->forward(t[0], t[1])));
  using Cross = nn::CrossEntropyLossOptions;
  add_loss<nn::CrossEntropyLoss>("CrossEntropyLoss", Cross(), classes, all);
  add_loss<nn::CrossEntropyLoss>("CrossEntropyLossSmoothedWeighed",
                                 Cross().weight(weights).label_smoothing(0.2).ignore_index(3),
                                 classes, all);
  add_loss<nn::CrossEntropyLoss>("CrossEntropyLossOfShares", Cross(), scores_and_shares, all);
  add_loss<nn::CrossEntropyLoss>("CrossEntropyLossOfSharesSmoothedWeighed",
                                 Cross().weight(weights).label_smoothing(0.2), scores_and_shares,
                                 all);
  add_loss<nn::CrossEntropyLoss>("CrossEntropyLoss2d", Cross().weight(weights).label_smoothing(0.1),
                                 pictures, all);
  // Their means are over the weights of the labels that masked_select leaves.
  for (ModuleCase& of : all) {
    of.is_on_host =
        of.name == "CrossEntropyLossSmoothedWeighedMean" || of.name == "CrossEntropyLoss2dMean";
  }
  all.push_back(
      MODULE("CrossEntropyLossAllIgnored", nn::CrossEntropyLoss(Cross().ignore_index(1)),
             joined(drawn({{4, 6}}), given([] { return listed(torch::ones({4}, at::kLong)); })),
             m->forward(t[0], t[1])));
  for (const bool has_zeros : {false, true}) {
    all.push_back(on_host(MODULE(
        has_zeros ? "CTCLossZeroed" : "CTCLoss",
        nn::CTCLoss(nn::CTCLossOptions().blank(2).zero_infinity(has_zeros).reduction(torch::kSum)),
        joined(drawn({{6, 2, 5}}), places_below(2, {2, 3})),
        m->forward(t[0].log_softmax(2), t[1], torch::tensor({6, 5}, at::kLong),
                   torch::tensor({3, 2}, at::kLong)))));
  }
  const auto vocabulary = nn::AdaptiveLogSoftmaxWithLossOptions(5, 8, {3, 6}).div_value(1.5);
  for (const bool has_bias : {false, true}) {
    auto options = nn::AdaptiveLogSoftmaxWithLossOptions(vocabulary).head_bias(has_bias);
    all.push_back(on_host(MODULE(
        has_bias ? "AdaptiveLogSoftmaxBias" : "AdaptiveLogSoftmax",
        nn::AdaptiveLogSoftmaxWithLoss(options),
        joined(drawn({{7, 5}}),
               given([] { return listed(torch::tensor({0, 7, 3, 5, 2, 6, 1}, at::kLong)); })),
        m->forward(t[0], t[1]).output)));
    all.push_back(
        on_host(MODULE(has_bias ? "AdaptiveLogProbabilitiesBias" : "AdaptiveLogProbabilities",
                       nn::AdaptiveLogSoftmaxWithLoss(options), drawn({{7, 5}}), m->log_prob(t[0]),
                       m->predict(t[0]))));
  }
  return all;
}

}  // namespace levin::test
