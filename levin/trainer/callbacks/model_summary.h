#pragma once
// ModelSummary: the table of layers and parameters that a run begins with.
// The trainer adds it by itself unless enable_model_summary = false.

#include <cstdint>
#include <memory>
#include <string>

#include "levin/base/export.h"
#include "levin/module/callback.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace levin {

struct ModelSummaryOptions {
  int64_t max_depth = 1;  ///< how deep into the module; -1: all the way
};

/// The table as text: name, type and parameters of each part, and the totals.
LEVIN_API std::string summarize(const torch::nn::Module& module, ModelSummaryOptions options = {});

/// Prints it to stderr on rank 0 when a fit begins.
class LEVIN_API ModelSummary : public Callback {
 public:
  /// Throws Error "trainer.options" for a depth below -1.
  explicit ModelSummary(ModelSummaryOptions options);
  std::string state_key() const override { return "model_summary"; }
  void on_fit_start(Trainer& trainer, Module& module) override;

 private:
  ModelSummaryOptions options_;
};

LEVIN_API std::shared_ptr<ModelSummary> model_summary(ModelSummaryOptions options = {});

}  // namespace levin
