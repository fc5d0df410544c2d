#include <c10/util/accumulate.h>
#include <torch/nn/module.h>

#include <cstdio>
#include <vector>

#include "levin/base/check.h"
#include "levin/module/layers/layers.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/trainer.h"

namespace levin {
namespace {

class ModelSummary : public Callback {
 public:
  /// Throws Error "trainer.options" for a depth below -1.
  explicit ModelSummary(ModelSummaryOptions options);
  std::string state_key() const override { return "model_summary"; }
  void on_fit_start(Trainer& trainer, Module& module) override;

 private:
  ModelSummaryOptions options_;
};

struct Row {
  std::string name;
  std::string type;
  int64_t parameters;
};

int64_t count(const torch::nn::Module& module, bool trainable_only = false) {
  int64_t total = 0;
  for (const NamedTensor& parameter : named_parameters(module)) {
    if (trainable_only && !parameter.tensor.requires_grad()) continue;
    total += c10::multiply_integers(shard::whole_sizes(parameter.tensor));
  }
  return total;
}

void collect(const torch::nn::Module& module, const std::string& prefix, int64_t depth,
             std::vector<Row>& rows) {
  if (depth == 0) return;
  for (const auto& child : module.named_children()) {
    const std::string name = prefix + child.key();
    rows.push_back({name, detail::class_name(*child.value()), count(*child.value())});
    collect(*child.value(), name + ".", depth - 1, rows);
  }
}

/// 1234567 reads 1.2 M.
std::string human(int64_t number) {
  const double value = static_cast<double>(number);
  if (number >= 1'000'000'000) return fmt::format("{:.1f} B", value / 1e9);
  if (number >= 1'000'000) return fmt::format("{:.1f} M", value / 1e6);
  if (number >= 1'000) return fmt::format("{:.1f} K", value / 1e3);
  return std::to_string(number);
}

}  // namespace

std::string summarize(const torch::nn::Module& module, ModelSummaryOptions options) {
  std::vector<Row> rows;
  collect(module, "", options.max_depth, rows);
  size_t name_width = 4;
  size_t type_width = 4;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    type_width = std::max(type_width, row.type.size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  {:>10}\n", "name", name_width, "type", type_width, "parameters");
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {:>10}\n", row.name, name_width, row.type, type_width,
                        human(row.parameters));
  }
  const int64_t total = count(module);
  const int64_t trainable = count(module, /*trainable_only=*/true);
  return text +
         fmt::format("{} parameters, {} of them trainable\n", human(total), human(trainable));
}

ModelSummary::ModelSummary(ModelSummaryOptions options) : options_(options) {
  LEVIN_CHECK(options.max_depth >= -1, "trainer.options",
              "got model_summary with max_depth = {}, wanted 0 or more, or -1 for all",
              options.max_depth);
}

void ModelSummary::on_fit_start(Trainer& trainer, Module& module) {
  if (!trainer.accelerator().is_main_process()) return;
  std::fputs(summarize(module, options_).c_str(), stderr);
}

std::shared_ptr<Callback> model_summary(ModelSummaryOptions options) {
  return std::make_shared<ModelSummary>(options);
}

}  // namespace levin
