#include "levin/observe/metrics/ranked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/error_of.h"

namespace levin::metrics {
namespace {

using test::error_of;
using ::testing::HasSubstr;

double value_of(const Metric& metric) { return metric.compute().item<double>(); }

TEST(RecallAtK, CountsAnswersAmongTheNearestOfAllRanks) {
  const at::Tensor texts =
      torch::tensor({{1.0, 0.0}, {0.0, 1.0}, {1.0, 1.0}, {-1.0, 0.2}}, at::kDouble);
  const at::Tensor answers =
      torch::tensor({{2.0, 0.1}, {1.0, 0.9}, {3.0, 2.8}, {0.1, 5.0}}, at::kDouble);
  // By the cosine: 0 is first of its text, 1 the third (3 and 1.. before it), 2 the first, 3 the first.
  for (const auto& [k, wanted] : {std::pair<int64_t, double>{1, 0.5}, {2, 0.75}, {4, 1.0}}) {
    RecallAtK first(k), second(k);
    first.update(texts.narrow(0, 0, 3), answers.narrow(0, 0, 3));
    second.update(texts.narrow(0, 3, 1), answers.narrow(0, 3, 1));
    first.merge(second.state_dict());
    double by_hand = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const at::Tensor cosines = at::cosine_similarity(texts[i].unsqueeze(0), answers, 1);
      by_hand += (cosines > cosines[i]).sum().item<int64_t>() < k ? 0.25 : 0;
    }
    EXPECT_NEAR(value_of(first), by_hand, 1e-12) << k;
    if (k == 4) EXPECT_EQ(by_hand, wanted);
  }
}

TEST(Ranked, NothingIsNaNAndShapesAreChecked) {
  EXPECT_TRUE(std::isnan(value_of(RecallAtK(1))));
  EXPECT_THAT(error_of([] { RecallAtK(0); }), HasSubstr("observe.metric.options"));
  EXPECT_THAT(error_of([] { RecallAtK(1).update(at::zeros({2, 3}), at::zeros({3, 3})); }),
              HasSubstr("observe.metric.shape"));
}

}  // namespace
}  // namespace levin::metrics
