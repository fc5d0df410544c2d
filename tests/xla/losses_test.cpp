// Losses and their gradients, over reductions, weights and ignored targets.
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT

OperatorTensors classes() {
  return {at::log_softmax(torch::randn({6, 5}, at::kDouble), 1),
          at::tensor({0, 4, 2, 1, 4, 3}, at::kLong), torch::rand({5}, at::kDouble) + 0.5};
}
OperatorTensors pixels() {
  return {at::log_softmax(torch::randn({2, 3, 4, 5}, at::kDouble), 1),
          torch::randint(3, {2, 4, 5}, at::kLong), torch::rand({3}, at::kDouble) + 0.5};
}
OperatorTensors probabilities() {
  return {torch::rand({3, 4}, at::kDouble) * 0.98 + 0.01, torch::rand({3, 4}, at::kDouble),
          torch::rand({4}, at::kDouble)};
}
OperatorTensors signs() {
  return {torch::randn({3, 4}, at::kDouble), (torch::randint(2, {3, 4}, at::kDouble) * 2 - 1)};
}
OperatorTensors labels() {
  return {torch::randn({3, 5}, at::kDouble),
          at::tensor({0, 3, -1, 2, 4, 1, -1, 0, 0, 0, 2, 4, 3, 1, 0}, at::kLong).view({3, 5})};
}

/// Adds a loss under a reduction: none, mean or sum, as at::Reduction numbers them.
auto loss_adder(std::vector<OperatorCase>& cases, int64_t reduction) {
  return
      [&cases, reduction](const char* name, const std::function<OperatorTensors()>& inputs,
                          const std::function<at::Tensor(const OperatorTensors&, int64_t)>& loss) {
        cases.push_back(
            {.name = c10::str(name, reduction),
             .inputs = inputs,
             .function = [=](const OperatorTensors& t) { return listed(loss(t, reduction)); },
             .with_gradients = true});
      };
}

std::vector<OperatorCase> elementwise() {
  const auto pair = drawn({{3, 4}, {3, 4}});
  std::vector<OperatorCase> cases;
  for (const int64_t r : {0, 1, 2}) {
    const auto add = loss_adder(cases, r);
    using T = const OperatorTensors&;
    add("Mse", pair, [](T t, int64_t by) { return at::mse_loss(t[0], t[1], by); });
    add("L1", pair, [](T t, int64_t by) { return at::l1_loss(t[0], t[1], by); });
    add("SmoothL1", pair, [](T t, int64_t by) { return at::smooth_l1_loss(t[0], t[1], by, 0.5); });
    add("Huber", pair, [](T t, int64_t by) { return at::huber_loss(t[0], t[1], by, 0.7); });
    add("SoftMargin", signs,
        [](T t, int64_t by) { return at::soft_margin_loss(t[0], t[1].detach(), by); });
    add("BinaryCrossEntropy", probabilities,
        [](T t, int64_t by) { return at::binary_cross_entropy(t[0], t[1].detach(), {}, by); });
    add("WeightedBinaryCrossEntropy", probabilities, [](T t, int64_t by) {
      return at::binary_cross_entropy(t[0], t[1].detach(), t[2].detach(), by);
    });
    add("BinaryCrossEntropyWithLogits", probabilities, [](T t, int64_t by) {
      return at::binary_cross_entropy_with_logits(t[0], t[1].detach(), t[2].detach(), t[2].detach(),
                                                  by);
    });
    add("KlDiv", probabilities,
        [](T t, int64_t by) { return at::kl_div(t[0].log(), t[1].detach(), by); });
    add("KlDivOfLogarithms", pair,
        [](T t, int64_t by) { return at::kl_div(t[0], t[1].detach(), by, true); });
    add("PoissonNll", pair, [](T t, int64_t by) {
      return at::poisson_nll_loss(t[0], t[1].detach().abs(), true, false, 1e-8, by);
    });
    add("MarginRanking", drawn({{6}, {6}}), [](T t, int64_t by) {
      return at::margin_ranking_loss(t[0], t[1], t[0].detach().sign(), 0.3, by);
    });
    add("HingeEmbedding", signs,
        [](T t, int64_t by) { return at::hinge_embedding_loss(t[0], t[1].detach(), 0.8, by); });
    add("CosineEmbedding", drawn({{4, 5}, {4, 5}}), [](T t, int64_t by) {
      const at::Tensor target = t[0].detach().select(1, 0).sign();
      return at::cosine_embedding_loss(t[0], t[1], target, 0.2, by);
    });
    add("TripletMargin", drawn({{4, 5}, {4, 5}, {4, 5}}), [](T t, int64_t by) {
      return at::triplet_margin_loss(t[0], t[1], t[2], 1.0, 2.0, 1e-6, false, by);
    });
  }
  return cases;
}

std::vector<OperatorCase> of_classes() {
  std::vector<OperatorCase> cases;
  for (const int64_t r : {0, 1, 2}) {
    const auto add = loss_adder(cases, r);
    using T = const OperatorTensors&;
    add("Nll", classes, [](T t, int64_t by) { return at::nll_loss(t[0], t[1], {}, by); });
    add("NllWeighted", classes,
        [](T t, int64_t by) { return at::nll_loss(t[0], t[1], t[2].detach(), by); });
    add("NllIgnoring", classes,
        [](T t, int64_t by) { return at::nll_loss(t[0], t[1], t[2].detach(), by, 4); });
    add("NllOfOne", classes,
        [](T t, int64_t by) { return at::nll_loss(t[0].select(0, 1), t[1].select(0, 1), {}, by); });
    add("Nll2d", pixels,
        [](T t, int64_t by) { return at::nll_loss2d(t[0], t[1], t[2].detach(), by, 1); });
    add("CrossEntropySmoothed", classes,
        [](T t, int64_t by) { return at::cross_entropy_loss(t[0], t[1], {}, by, -100, 0.1); });
    add("MultiMargin", classes,
        [](T t, int64_t by) { return at::multi_margin_loss(t[0], t[1], 1, 0.6, {}, by); });
    add("MultiMarginSquared", classes, [](T t, int64_t by) {
      return at::multi_margin_loss(t[0], t[1], 2, 0.6, t[2].detach(), by);
    });
    add("MultilabelMargin", labels,
        [](T t, int64_t by) { return at::multilabel_margin_loss(t[0], t[1], by); });
    add("MultilabelMarginOfOne", labels, [](T t, int64_t by) {
      return at::multilabel_margin_loss(t[0].select(0, 0), t[1].select(0, 0), by);
    });
  }
  for (OperatorCase& of : cases) {
    if (of.name.find("Margin") != std::string::npos) of.dtypes = kWide;
  }
  return cases;
}

std::vector<OperatorCase> corners() {
  std::vector<OperatorCase> cases = {
      CASE("MseOfNone", drawn({{0, 3}, {0, 3}}), at::mse_loss(t[0], t[1]),
           at::mse_loss(t[0], t[1], 2)),
      CASE("MseOfBroadcasts", drawn({{2, 3}, {3}}), at::mse_loss(t[0], t[1]),
           at::mse_loss(t[0], t[1], 0)),
      CASE("NllOfNone", given([] {
             return OperatorTensors{torch::randn({0, 3}, at::kDouble),
                                    torch::zeros({0}, at::kLong)};
           }),
           at::nll_loss(t[0], t[1]), at::nll_loss(t[0], t[1], {}, 2)),
      CASE("NllAllIgnored", classes, at::nll_loss(t[0], at::full_like(t[1], -100)),
           at::nll_loss(t[0], at::full_like(t[1], -100), {}, 2)),
      CASE(
          "NllOfInfiniteScores", classes,
          at::nll_loss(at::where(t[0] < -2, -std::numeric_limits<double>::infinity(), t[0]), t[1])),
      CASE("SmoothL1WithoutBeta", drawn({{5}, {5}}), at::smooth_l1_loss(t[0], t[1], 1, 0.0)),
      CASE("BinaryCrossEntropyOfBounds", given([] {
             return OperatorTensors{at::tensor({0.0, 1.0, 0.0, 1.0}, at::kDouble),
                                    at::tensor({0.0, 1.0, 1.0, 0.0}, at::kDouble)};
           }),
           at::binary_cross_entropy(t[0], t[1], {}, 0)),
  };
  return cases;
}

class Losses : public testing::TestWithParam<OperatorCase> {};
TEST_P(Losses, EqualAten) { expect_same_on_both(GetParam()); }

std::string loss_name(const testing::TestParamInfo<OperatorCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(OfElements, Losses, testing::ValuesIn(elementwise()), loss_name);
INSTANTIATE_TEST_SUITE_P(OfClasses, Losses, testing::ValuesIn(of_classes()), loss_name);
INSTANTIATE_TEST_SUITE_P(Corners, Losses, testing::ValuesIn(corners()), loss_name);

}  // namespace
