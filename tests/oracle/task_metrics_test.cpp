// Metrics of validation held against scikit-learn, seqeval and scipy, batch by batch and merged over two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/observe/metric.h"
#include "levin/observe/metrics/counted.h"
#include "levin/observe/metrics/ranked.h"
#include "tests/oracle/python.h"

namespace levin::metrics {
namespace {

class TaskMetrics : public test::PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    if (IsSkipped()) return;
    std::string said;
    const int code = run("task_metrics.py", "'" + file("").string() + "'", &said);
    if (said.find("No module named 'seqeval'") != std::string::npos) GTEST_SKIP() << said;
    ASSERT_EQ(code, 0) << said;
    data_ = load_weights(file("data.safetensors"));
    wanted_ = nlohmann::json::parse(test::bytes_of(file("wanted.json")));
  }

  /// The samples in batches of 7, of which each rank sees every other one.
  template <class Make>
  void expect(const char* name, const Make& make, const std::string& found,
              const std::string& right, double tolerance = 1e-12) {
    const auto ranks = std::array{make(), make()};
    const auto a = data_.tensor(found).split(7), b = data_.tensor(right).split(7);
    for (size_t i = 0; i < a.size(); ++i) ranks[i % 2]->update(a[i], b[i]);
    ranks[0]->merge(ranks[1]->state_dict());
    const double value = ranks[0]->compute().template item<double>();
    EXPECT_NEAR(value, wanted_[name].get<double>(), tolerance) << name;
    EXPECT_GT(value, 0.05) << name << ": a number of nothing";
    EXPECT_LT(value, 1.0) << name << ": all of it right";
  }

  State data_;
  nlohmann::json wanted_;
};

TEST_F(TaskMetrics, AreThoseOfScikitLearnSeqevalAndScipy) {
  const auto accuracy = [](int64_t k) {
    return [k] {
      return std::make_shared<Accuracy>(AccuracyOptions{.top_k = k, .ignore_index = -100});
    };
  };
  const auto f1 = [](const ClassificationOptions& options) {
    return [=] { return std::make_shared<F1Score>(options); };
  };
  const auto recall = [](int64_t k) { return [k] { return std::make_shared<RecallAtK>(k); }; };
  expect("accuracy", accuracy(1), "classes.scores", "classes.labels");
  expect("top_3", accuracy(3), "classes.scores", "classes.labels");
  expect("f1_macro", f1({.num_classes = 6, .average = "macro", .ignore_index = -100}),
         "classes.scores", "classes.labels");
  expect("f1_binary", f1({.task = "binary"}), "two.classes", "two.labels");
  expect(
      "entity_f1",
      [] {
        return std::make_shared<EntityF1>(
            std::vector<std::string>{"O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"});
      },
      "entities.found", "entities.labels");
  expect(
      "spearman", [] { return std::make_shared<SpearmanCorrCoef>(); }, "numbers.found",
      "numbers.labels");
  for (const int64_t k : {1, 3, 10}) {
    expect(("recall_" + std::to_string(k)).c_str(), recall(k), "neighbours.texts",
           "neighbours.answers");
  }
}

/// Of the mean loss of each batch, as a fine-tuning has it; rows of the batches have other numbers of tokens.
TEST_F(TaskMetrics, PerplexityIsThatOfAllTokens) {
  const at::Tensor scores = data_.tensor("tokens.scores"), labels = data_.tensor("tokens.labels");
  LossPerplexity perplexity;
  for (int64_t row = 0; row < scores.size(0); ++row) {
    const at::Tensor loss = at::cross_entropy_loss(scores[row], labels[row], {});
    perplexity.update(loss, labels[row].ne(-100).sum());
  }
  const double wanted = wanted_["perplexity"].get<double>();
  EXPECT_NEAR(perplexity.compute().item<double>() / wanted, 1, 1e-6);  // losses are float32
}

}  // namespace
}  // namespace levin::metrics
