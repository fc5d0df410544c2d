#pragma once
// CompiledStep: a training step that is recorded and replayed, with what the engine does in it
// beside tensors: optimizers' counts, schedules, accumulation, logs.
//
//   CompiledStep step(engine, "the training step");
//   const at::Tensor loss = step(StepCall(batch), [&] { return std::vector{train(batch)}; })[0];

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"
#include "levin/graph/compile/compiled.h"
#include "levin/module/layers/layers.h"
#include "levin/module/parameters.h"

namespace levin {

class Engine;
struct AcceleratorOptions;

/// Throws Error "accelerator.compile_check" for values that --compile-check, its policy and its memory do not take.
void check_compile_check(const AcceleratorOptions& options);

/// A call of a step.
struct StepCall {
  StepCall() = default;
  explicit StepCall(const Batch& batch) { add(batch); }
  void add(const Batch& batch) {
    for (const auto& [name, tensor] : batch) inputs.push_back({name, tensor});
  }

  std::vector<NamedTensor> inputs = {};      ///< the tensors that are new in each call
  std::vector<graph::Guard> guards = {};     ///< numbers that the function's operators depend on
  std::vector<graph::Guard> arguments = {};  ///< numbers that it gets and may leave unread
  std::optional<int64_t> step = {};          ///< its number, for messages
};

/// With EngineOptions::compile = "no" it only calls the function.
class LEVIN_API CompiledStep {
 public:
  using Function = graph::Compiled::Function;

  /// The engine must outlive it.
  CompiledStep(Engine& engine, std::string name);
  ~CompiledStep();
  CompiledStep(const CompiledStep&) = delete;
  CompiledStep& operator=(const CompiledStep&) = delete;

  /// Modes of modules, parameters that need gradients, hyper-parameters of optimizers and the engine's
  /// StepPlace are conditions of each call. See graph::Compiled.
  std::vector<at::Tensor> operator()(const StepCall& call, const Function& function);
  /// See graph::Compiled.
  void check_next() { compiled_.check_next(); }

  const graph::Compiled& compiled() const { return compiled_; }

 private:
  void prepare();
  void add_conditions();
  void look_for_writes();
  std::vector<at::Tensor> weights() const;
  uint64_t versions() const;
  bool has_other_modules() const;
  std::vector<at::Tensor> run(const Function& function);

  Engine& engine_;
  graph::Compiled compiled_;
  graph::Conditions conditions_;  ///< conditions of the call
  size_t num_outcomes_ = 0;       ///< replays and refusals that compiled_ has reported
  uint64_t calls_ = 0;
  bool ran_ = false;  ///< the last call ran the function: it was no replay
  int64_t num_preparations_ = 0;
  uint64_t versions_ = 0;        ///< versions of the parameters after the last call
  uint64_t outside_writes_ = 0;  ///< calls before which somebody else had written to them
  int64_t generation_ = -1;  ///< the engine's generation for which the members below were prepared
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<std::string> module_names_;
  std::vector<int64_t> module_counts_;  ///< who else held each
  std::vector<detail::ModuleOptions> module_options_;
  std::vector<std::string> gradient_names_;
};

}  // namespace levin
