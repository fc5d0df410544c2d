// Metrics held against torchmetrics: all tasks, averages and options over drawn data (torch_metrics.py), batch by batch
// and merged over three ranks, one of which has no sample.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "levin/checkpoint/checkpoint.h"
#include "levin/observe/metric.h"
#include "tests/oracle/python.h"

namespace levin::metrics {
namespace {

using nlohmann::json;

/// A metric with its update().
struct Made {
  std::shared_ptr<Metric> metric;
  std::function<void(const at::Tensor&, const at::Tensor&)> update;
};

template <class Kind, class... Args>
Made made(Args&&... args) {
  const auto metric = std::make_shared<Kind>(std::forward<Args>(args)...);
  return {metric, [metric](const at::Tensor& found, const at::Tensor& wanted) {
            metric->update(found, wanted);
          }};
}

template <class Value>
std::optional<Value> optional(const json& given, const char* name) {
  if (!given.contains(name)) return std::nullopt;
  return given[name].get<Value>();
}

ClassificationOptions classification(const json& given) {
  ClassificationOptions options;
  options.task = given["task"];
  options.num_classes = given.value("num_classes", int64_t{0});
  options.num_labels = given.value("num_labels", int64_t{0});
  options.average = given.value("average", "micro");
  options.threshold = given.value("threshold", 0.5);
  options.top_k = given.value("top_k", int64_t{1});
  options.ignore_index = optional<int64_t>(given, "ignore_index");
  options.zero_division = given.value("zero_division", 0.0);
  return options;
}

CurveOptions curve(const json& given) {
  CurveOptions options;
  options.task = given["task"];
  options.num_classes = given.value("num_classes", int64_t{0});
  options.num_labels = given.value("num_labels", int64_t{0});
  options.average = given.value("average", "macro");
  options.thresholds = optional<int64_t>(given, "thresholds");
  options.ignore_index = optional<int64_t>(given, "ignore_index");
  options.max_fpr = optional<double>(given, "max_fpr");
  return options;
}

RegressionOptions regression(const json& given) {
  return {.num_outputs = given.value("num_outputs", int64_t{1}),
          .squared = given.value("squared", true),
          .adjusted = given.value("adjusted", int64_t{0}),
          .multioutput = given.value("multioutput", "uniform_average")};
}

template <class Kind>
Made of_classes(const json& given) {
  return made<Kind>(classification(given));
}

template <class Kind>
Made of_curve(const json& given) {
  return made<Kind>(curve(given));
}

template <class Kind>
Made of_numbers(const json& given) {
  return made<Kind>(regression(given));
}

const std::map<std::string, std::function<Made(const json&)>>& kinds() {
  static const std::map<std::string, std::function<Made(const json&)>> all = {
      {"Accuracy", of_classes<Accuracy>},
      {"Precision", of_classes<Precision>},
      {"Recall", of_classes<Recall>},
      {"Specificity", of_classes<Specificity>},
      {"F1Score", of_classes<F1Score>},
      {"FBetaScore",
       [](const json& given) {
         return made<FBetaScore>(given["beta"].get<double>(), classification(given));
       }},
      {"ConfusionMatrix",
       [](const json& given) {
         return made<ConfusionMatrix>(classification(given), given["normalize"].get<std::string>());
       }},
      {"AUROC", of_curve<AUROC>},
      {"AveragePrecision", of_curve<AveragePrecision>},
      {"MeanAbsoluteError", of_numbers<MeanAbsoluteError>},
      {"MeanSquaredError", of_numbers<MeanSquaredError>},
      {"R2Score", of_numbers<R2Score>},
      {"PearsonCorrCoef", of_numbers<PearsonCorrCoef>},
      {"SpearmanCorrCoef", of_numbers<SpearmanCorrCoef>},
      {"Perplexity", [](const json& given) {
         return made<Perplexity>(optional<int64_t>(given, "ignore_index"));
       }}};
  return all;
}

/// The shape and the elements of nested lists; null is NaN.
void flatten(const json& value, size_t depth, std::vector<int64_t>& sizes,
             std::vector<double>& elements) {
  if (!value.is_array()) {
    elements.push_back(value.is_null() ? NAN : value.get<double>());
    return;
  }
  if (sizes.size() == depth) sizes.push_back(static_cast<int64_t>(value.size()));
  for (const json& part : value) flatten(part, depth + 1, sizes, elements);
}

/// "" for a value of that shape within 1e-6.
std::string off(const at::Tensor& value, const json& wanted) {
  std::vector<int64_t> sizes;
  std::vector<double> elements;
  flatten(wanted, 0, sizes, elements);
  if (value.sizes() != at::IntArrayRef(sizes)) return "the shape " + c10::str(value.sizes());
  const at::Tensor own = value.flatten().contiguous();
  if (own.scalar_type() != at::kDouble) return "no float64";
  for (int64_t i = 0; i < own.numel(); ++i) {
    const double got = own.const_data_ptr<double>()[i], right = elements[static_cast<size_t>(i)];
    const bool is_same = std::isnan(right)
                             ? std::isnan(got)
                             : std::abs(got - right) <= 1e-6 * std::max(1.0, std::abs(right));
    if (!is_same) return c10::str("element ", i, " is ", got, ", wanted ", right);
  }
  return "";
}

class TorchMetrics : public test::PythonTest {};

TEST_F(TorchMetrics, HaveTheSameValues) {
  std::string said;
  const int code = run("torch_metrics.py", "'" + file("").string() + "'", &said);
  if (said.find("No module named 'torchmetrics'") != std::string::npos) GTEST_SKIP() << said;
  ASSERT_EQ(code, 0) << said;
  const State data = load_weights(file("data.safetensors"));
  const json cases = json::parse(test::bytes_of(file("cases.json")));
  std::set<std::string> seen;
  for (const json& given : cases) {
    const std::string name = given["metric"];
    seen.insert(name);
    const auto make = [&] { return kinds().at(name)(given["options"]); };
    const auto sizes = given["sizes"].get<std::vector<int64_t>>();
    const auto found = data.tensor(given["found"].get<std::string>()).split_with_sizes(sizes);
    const auto wanted = data.tensor(given["wanted"].get<std::string>()).split_with_sizes(sizes);
    Made whole = make(), first = make(), second = make(), idle = make(), loaded = make();
    for (size_t i = 0; i < sizes.size(); ++i) {
      whole.update(found[i], wanted[i]);
      (i == 1 ? second : first).update(found[i], wanted[i]);
    }
    EXPECT_EQ(off(whole.metric->compute(), given["value"]), "") << given;
    idle.metric->merge(second.metric->state_dict());
    idle.metric->merge(first.metric->state_dict());
    EXPECT_EQ(off(idle.metric->compute(), given["value"]), "") << "of ranks: " << given;
    loaded.metric->load_state_dict(whole.metric->state_dict());
    EXPECT_EQ(off(loaded.metric->compute(), given["value"]), "") << "loaded: " << given;
    EXPECT_EQ(whole.metric->is_scalar(), !given["value"].is_array()) << given;
  }
  EXPECT_EQ(seen.size(), kinds().size());
  EXPECT_GT(cases.size(), 2000U);
}

}  // namespace
}  // namespace levin::metrics
