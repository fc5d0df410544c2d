#pragma once
// EvaluationMode: a module in evaluation mode for the time of a scope.

#include <torch/nn/module.h>

#include <utility>
#include <vector>

namespace levin {

/// Puts a module into evaluation mode and each of its parts back into the mode it had.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    for (const auto& part : module.modules()) modes_.emplace_back(part.get(), part->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    // Parents come first, so that a part which was in another mode than its parent has the last
    // word.
    for (const auto& [part, training] : modes_) {
      if (part->is_training() != training) part->train(training);
    }
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
};

}  // namespace levin
