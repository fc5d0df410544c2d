#include "levin/models/losses/chunked_nll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/autocast.h"
#include "levin/data/batch.h"
#include "levin/models/losses/token_loss.h"
#include "levin/strategy/backward.h"
#include "tests/models/small_models.h"
#include "tests/support/error_of.h"
#include "tests/support/peak_memory.h"

namespace levin::models {
namespace {

using test::error_of;
using ::testing::HasSubstr;

constexpr int64_t kWidth = 12;

struct Case {
  const char* name;
  int64_t rows, vocabulary;
  bool bias = false, trains = true;
  double softcap = 0;
  at::ScalarType dtype = at::kFloat;
};

struct Given {
  explicit Given(const Case& c) {
    torch::manual_seed(4);
    const auto options = at::TensorOptions(at::kFloat);
    hidden = at::randn({c.rows, kWidth}, options).to(c.dtype).requires_grad_();
    output.matrix = at::randn({c.vocabulary, kWidth}, options).to(c.dtype);
    if (c.bias) output.bias = at::randn({c.vocabulary}, options).to(c.dtype);
    output.softcap = c.softcap;
    for (at::Tensor* part : {&output.matrix, &output.bias}) {
      if (part->defined()) part->requires_grad_(c.trains);
    }
    labels = at::randint(c.vocabulary, {c.rows}, at::kLong);
    labels.masked_fill_(at::arange(c.rows) % 3 == 1, kNotCounted);
  }

  /// Of all scores at once; in float64 where the tensors are.
  at::Tensor plain() const {
    auto scores = at::linear(hidden, output.matrix, output.bias);
    if (!is_wide) scores = scores.to(at::kFloat);
    if (output.softcap > 0) scores = at::tanh(scores / output.softcap) * output.softcap;
    return at::cross_entropy_loss(scores, labels, {}, at::Reduction::None, kNotCounted);
  }

  std::vector<at::Tensor> gradients(const at::Tensor& loss, bool keep_graph = false) const {
    std::vector<at::Tensor> inputs{hidden};
    for (const at::Tensor& part : {output.matrix, output.bias}) {
      if (part.defined() && part.requires_grad()) inputs.push_back(part);
    }
    return torch::autograd::grad({loss}, inputs, {}, keep_graph);
  }

  Given in_float64() const {
    Given wide = *this;
    wide.is_wide = true;
    for (at::Tensor* tensor : {&wide.hidden, &wide.output.matrix, &wide.output.bias}) {
      if (tensor->defined())
        *tensor = tensor->detach().to(at::kDouble).requires_grad_(tensor->requires_grad());
    }
    return wide;
  }

  at::Tensor hidden, labels;
  OutputLayer output;
  bool is_wide = false;
};

/// The largest difference, of the largest number.
double difference(const at::Tensor& found, const at::Tensor& wanted) {
  const auto a = found.detach().to(at::kDouble), b = wanted.detach().to(at::kDouble);
  return ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
}

/// 40,000 rows of a matrix are more than a chunk of scores is for 1000 positions.
const Case kCases[] = {
    {.name = "frozen", .rows = 1000, .vocabulary = 40'000, .trains = false},
    {.name = "trained", .rows = 1000, .vocabulary = 40'000},
    {.name = "biased", .rows = 40, .vocabulary = 300, .bias = true},
    {.name = "capped", .rows = 40, .vocabulary = 300, .bias = true, .softcap = 2},
    {.name = "capped_frozen", .rows = 40, .vocabulary = 300, .trains = false, .softcap = 2}};

/// Of gradients of a float32 loss over 40,000 scores LibTorch's are off by 1e-5 of the largest, those in
/// chunks by 6e-7: what both are held against is float64.
constexpr double kNear = 2e-6;

TEST(ChunkedNll, EqualsThePlainLossInFloat64WithItsGradients) {
  for (const Case& c : kCases) {
    const Given given(c), wide = given.in_float64();
    const at::Tensor wanted = wide.plain().sum(),
                     sum = nll_sum(given.hidden, given.output, given.labels);
    EXPECT_LT(difference(sum, wanted), 1e-6) << c.name;
    const auto found = given.gradients(sum * 0.25), right = wide.gradients(wanted * 0.25);
    ASSERT_EQ(found.size(), c.trains ? (c.bias ? 3 : 2) : 1);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LT(difference(found[i], right[i]), kNear) << c.name << " " << i;
  }
}

/// The plain loss of float32 is no nearer to float64.
TEST(ChunkedNll, RoundsNoMoreThanThePlainLoss) {
  for (const Case& c : kCases) {
    const Given given(c), wide = given.in_float64();
    const auto exact = wide.gradients(wide.plain().sum()),
               found = given.gradients(nll_sum(given.hidden, given.output, given.labels)),
               plain = given.gradients(given.plain().sum());
    for (size_t i = 0; i < exact.size(); ++i) {
      const double theirs = difference(plain[i], exact[i]);
      EXPECT_LT(theirs, 3e-5) << c.name << " " << i;
      EXPECT_LT(difference(found[i], exact[i]), 2 * theirs + 1e-7) << c.name << " " << i;
    }
  }
}

TEST(ChunkedNll, OfEachPositionTheSameWithGradientsThatDiffer) {
  for (const Case& c : kCases) {
    const Given given(c), wide = given.in_float64();
    const at::Tensor weights = at::linspace(-1, 2, c.rows);
    const at::Tensor wanted = wide.plain(),
                     each = nll_of_each(given.hidden, given.output, given.labels);
    EXPECT_LT(difference(each, wanted), 1e-6) << c.name;
    EXPECT_EQ(each[1].item<float>(), 0) << "its label does not count";
    const auto found = given.gradients((each * weights).sum());
    const auto right = wide.gradients((wanted * weights.to(at::kDouble)).sum());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LT(difference(found[i], right[i]), kNear) << c.name << " " << i;
  }
}

/// A graph that is kept has the same gradients each time, by LibTorch's engine and by levin's walk after it.
TEST(ChunkedNll, ASecondBackwardThroughAKeptGraphHasTheSameGradients) {
  for (const Case& c : kCases) {
    const Given given(c), wide = given.in_float64();
    const auto right = wide.gradients(wide.plain().sum() * 0.25);
    const at::Tensor sum = nll_sum(given.hidden, given.output, given.labels) * 0.25;
    const at::Tensor each = nll_of_each(given.hidden, given.output, given.labels).sum() * 0.25;
    for (const at::Tensor& kept : {sum, each}) {
      for (int time = 0; time < 2; ++time) {
        const auto found = given.gradients(kept, /*keep_graph=*/true);
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_LT(difference(found[i], right[i]), kNear) << c.name << " " << i << " " << time;
      }
      levin::backward(kept);
      EXPECT_LT(difference(given.hidden.grad(), right[0]), kNear) << c.name << ", levin's walk";
      if (c.trains) EXPECT_LT(difference(given.output.matrix.grad(), right[1]), kNear) << c.name;
      for (const at::Tensor& tensor : {given.hidden, given.output.matrix})
        tensor.mutable_grad() = at::Tensor();
      EXPECT_ANY_THROW(given.gradients(kept)) << c.name << ": the walk frees the graph";
    }
  }
}

TEST(ChunkedNll, ComputesInTheTypeOfAutocastAsLinearDoes) {
  for (const bool trains : {false, true}) {
    const Given given({.rows = 60, .vocabulary = 500, .trains = trains});
    const AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    const at::Tensor wanted = given.plain().sum(),
                     found = nll_sum(given.hidden, given.output, given.labels);
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_LT(difference(found, wanted), 1e-6);
    const auto mine = given.gradients(found), right = given.gradients(wanted);
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].scalar_type(), at::kFloat);
      EXPECT_LT(difference(mine[i], right[i]), 1e-2) << i;  // sums of bfloat16 in another order
    }
  }
}

TEST(ChunkedNll, HoldsSomeScoresAtATimeAndNoneOfWhatDoesNotCount) {
  const Given given({.rows = 2000, .vocabulary = 50'000, .trains = false});
  const int64_t all = int64_t{2000} * 50'000 * 4;
  const auto peak = [&](const at::Tensor& labels) {
    const test::PeakMemory memory;
    given.gradients(nll_sum(given.hidden, given.output, labels));
    return test::PeakMemory::bytes();
  };
  EXPECT_LT(peak(given.labels), all / 4);
  at::Tensor few = at::full_like(given.labels, kNotCounted);
  few.narrow(0, 500, 20).fill_(7);
  EXPECT_LT(peak(few), 20 * 50'000 * 4 * 2 + (1 << 20));
  const test::PeakMemory memory;
  given.gradients(given.plain().sum());
  EXPECT_GT(test::PeakMemory::bytes(), 2 * all) << "what it is compared with";
}

TEST(ChunkedNll, ALabelThatIsNoRowIsNamed) {
  const Given given({.rows = 10, .vocabulary = 30});
  EXPECT_THAT(error_of([&] { nll_sum(given.hidden, given.output, at::full({10}, 30)); }),
              HasSubstr("models.labels: got the label 30, wanted 0 to 29"));
  EXPECT_THAT(error_of([&] { nll_of_each(given.hidden, given.output, at::full({10}, -1)); }),
              HasSubstr("models.labels: got the label -1"));
}

TEST(ChunkedNll, NothingThatCountsGivesNoLossAndNoGradient) {
  const Given given({.rows = 10, .vocabulary = 30});
  const at::Tensor none = at::full_like(given.labels, kNotCounted);
  const at::Tensor sum = nll_sum(given.hidden, given.output, none);
  EXPECT_EQ(sum.item<float>(), 0);
  for (const at::Tensor& gradient : given.gradients(sum))
    EXPECT_EQ(gradient.abs().max().item<float>(), 0);
}

/// Models with a large vocabulary take it by themselves; tied matrices get both of their gradients.
TEST(TokenLoss, WithoutLogitsIsTheLossWithThemForEachKindOfHead) {
  const struct {
    std::string config, task;
  } cases[] = {{test::small_qwen3(), "text-generation"},
               {test::small_gpt2(), "text-generation"},
               {test::small_bert(), "fill-mask"},
               {test::small_modernbert(), "fill-mask"}};
  for (const auto& [text, task] : cases) {
    std::string large = text;
    large.replace(large.find("\"vocab_size\": 61"), 16, "\"vocab_size\": 9000");
    torch::manual_seed(2);
    const auto net = test::small(large, task);
    const at::Tensor ids = at::randint(3, 9000, {3, 8}, at::kLong);
    at::Tensor labels = ids.clone();
    labels.narrow(1, 0, 3).fill_(kNotCounted);
    const Batch batch{{"input_ids", ids}, {"labels", labels}};
    std::map<std::string, at::Tensor> right;
    const Output whole = net->forward(batch);
    whole.loss.backward();
    double largest = 0;  // of all gradients: a key's bias has one of rounding errors
    for (const auto& parameter : net->named_parameters()) {
      const at::Tensor& gradient = right[parameter.key()] = parameter.value().grad();
      if (gradient.defined()) largest = std::max(largest, gradient.abs().max().item<double>());
    }
    net->zero_grad();
    const Output lean = net->forward(batch, {.logits = false});
    lean.loss.backward();
    EXPECT_FALSE(lean.logits.defined());
    EXPECT_LT(difference(lean.loss, whole.loss), 1e-6) << text;
    EXPECT_EQ(lean.count.item<int64_t>(), 15) << text;
    EXPECT_EQ(whole.count.item<int64_t>(), 15) << text;
    for (const auto& parameter : net->named_parameters()) {
      const at::Tensor& gradient = parameter.value().grad();
      ASSERT_EQ(gradient.defined(), right[parameter.key()].defined()) << parameter.key();
      if (gradient.defined())
        EXPECT_LT((gradient - right[parameter.key()]).abs().max().item<double>(), 1e-5 * largest)
            << parameter.key();
    }
  }
}

TEST(TokenLoss, OfEachLabelIsMinusItsLogProbability) {
  for (const int64_t vocabulary : {61, 9000}) {
    std::string text = test::small_qwen3();
    text.replace(text.find("\"vocab_size\": 61"), 16,
                 "\"vocab_size\": " + std::to_string(vocabulary));
    torch::manual_seed(2);
    const auto net = test::small(text, "text-generation");
    const at::Tensor ids = at::randint(3, 61, {2, 6}, at::kLong);
    at::Tensor labels = ids.clone();
    labels[0].narrow(0, 0, 4).fill_(kNotCounted);
    const at::Tensor found = nll_of_labels(*net, {{"input_ids", ids}, {"labels", labels}});
    const at::Tensor logps = net->forward({{"input_ids", ids}}).logits.log_softmax(-1);
    ASSERT_EQ(found.sizes(), ids.sizes());
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t place = 0; place < 6; ++place) {
        const bool counts = place < 5 && (row == 1 || place >= 3);
        const double wanted =
            counts ? -logps[row][place][ids[row][place + 1].item<int64_t>()].item<double>() : 0;
        EXPECT_NEAR(found[row][place].item<double>(), wanted, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace levin::models
