#pragma once
// BuildHandler: stands in for the kernels while a constructor runs: tensors are made without memory
// and what is done to them is written down.

#include <c10/util/FunctionRef.h>

#include <memory>
#include <vector>

#include "levin/graph/meta/build_arguments_impl.h"
#include "levin/graph/meta/build_log_impl.h"
#include "levin/graph/record/interposer.h"

namespace levin::graph::meta {

class BuildHandler final : public OperatorHandler {
 public:
  BuildHandler() : log_(std::make_shared<BuildLog>()) {}

  void call(OperatorCall& call) override;

  BuildLog& log() { return *log_; }
  /// Moves all generators to where ordinary construction leaves them.
  void settle() { places_.settle_all(); }
  /// The same for a constructor that has thrown.
  void settle_if_possible() noexcept;

 private:
  void run_itself(OperatorCall& call, const OperatorInfo& info);
  Step step_of(const BuildArguments& arguments, torch::jit::Stack stack);
  StepTensor step_tensor(const OperatorInfo& info, size_t parameter, const at::Tensor& tensor);
  void run_shapes(OperatorCall& call, const Step& step, bool runs_on_meta);
  void run_for_shapes(OperatorCall& call, const Step& step);
  void draw(Step& step, const at::Generator& generator, const at::Tensor& filled);
  void keep(Step step, const std::vector<at::Tensor>& written,
            const std::vector<at::Tensor>& results);

  std::shared_ptr<BuildLog> log_;
  DrawPlaces places_;
  DrawRules rules_;
};

/// Returns how an operator fills a tensor, if it does.
std::optional<Fill> fill_of(const OperatorInfo& info);

}  // namespace levin::graph::meta
