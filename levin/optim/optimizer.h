#pragma once
// Optimizer: parameters updated from their gradients; state kept by parameter name.
// Built from an OptimizerConfig after the strategy has placed the parameters.
//
//   auto optimizer = optim::build_optimizer(config, named_parameters(*net));
//   loss.backward(); optimizer->step(); optimizer->zero_grad();

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"

namespace levin::optim {

/// Parameters that share options.
struct ParameterGroup {
  std::string pattern;  ///< of the names; "*" for the last group
  double lr = 0.0;      ///< what the next step uses; a schedule writes it
  double initial_lr = 0.0;
  double weight_decay = 0.0;
  std::vector<size_t> members;  ///< indices into parameters()
  double momentum = 0.0;        ///< the first of the betas of those that have betas
};

/// The parts of an optimizer that a step has moved on.
using Moved = std::vector<size_t>;

/// Computes the loss and its gradients anew, and gives the loss.
using Closure = std::function<at::Tensor()>;

class LEVIN_API Optimizer {
 public:
  Optimizer(std::string name, std::vector<NamedTensor> parameters,
            std::vector<ParameterGroup> groups);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update. A parameter without gradient is left alone, and its own step count too; one that
  /// is frozen has no state until it is not. Throws Error "optim.parameters" where a parameter is
  /// of another shape, type or device than when this was built.
  virtual void step() = 0;
  /// Whether a step computes the loss itself, as often as it needs it (LBFGS).
  virtual bool evaluates_losses() const { return false; }
  /// Of one that does: for the next step(), which calls it.
  virtual void set_closure(Closure closure);
  /// Cuts later steps into waves, so that a wave can be updated while the gradients of the next are
  /// still on their way: step_wave(0), step_wave(1), ... in place of step(), which does them all.
  /// waves[i] is that of parameters()[i]. False, and nothing changed, where this optimizer has only
  /// whole steps.
  virtual bool set_waves(std::vector<int64_t> waves);
  virtual void step_wave(int64_t wave);
  /// For a step that is recorded to be run again: what changes from one step to the next (counts,
  /// learning rates) is then read from tensors, so that the operators of the recorded step are
  /// those of the next one. As PyTorch's option of that name. False where this optimizer computes
  /// on the host.
  virtual bool set_capturable(bool capturable);
  /// The tensors that a replay reads get the numbers of the coming step. Counts nothing, so that it may be called
  /// also where no replay follows.
  virtual void before_replay() {}
  /// The parts that the last step() moved, for replayed(). Throws Error "optim.capturable" unless that was set.
  virtual Moved moved() const;
  /// To be called after each replay of a step that moved these, as long as layout() is what it was then: what step()
  /// counts on the host.
  virtual void replayed(const Moved& moved);
  /// Parameters that somebody else has written since the last step, where this optimizer keeps copies of them.
  virtual std::vector<size_t> written() const { return {}; }
  /// To be called after replayed() where what was replayed writes these after the step.
  virtual void note_written(const std::vector<size_t>&) {}
  /// Another number whenever steps that were recorded no longer hold.
  virtual int64_t layout() const { return 0; }
  /// The tensors that it keeps, as "exp_avg of net.0.weight"; for graphs of its steps.
  virtual std::vector<NamedTensor> named_state() const { return {}; }
  /// Drops the gradients (PyTorch's set_to_none).
  void zero_grad();

  const std::string& name() const { return name_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  std::vector<ParameterGroup>& groups() { return groups_; }
  const std::vector<ParameterGroup>& groups() const { return groups_; }

  /// {"name", "groups": {"0": {"pattern", "lr", "initial_lr"}}, "parameters": {name: state}}.
  /// Tensors are the optimizer's own, not copies. What it keeps for each element of a parameter that
  /// is divided over ranks (shard/leaf.h) is a TensorSlice.
  State state_dict() const;
  /// Takes up a state of the same optimizer over parameters of the same names; it may lack those
  /// that are frozen now. Its tensors are whole, or have at least this rank's part. Throws Error "optim.state.kind", "optim.state.names" (listing what is
  /// missing and what is too many), "optim.state.groups" or "optim.state.shape", and then has
  /// changed nothing.
  void load_state_dict(const State& state);

 protected:
  virtual State parameter_states() const = 0;
  /// By name, for the names of parameters(); some of the frozen ones may lack.
  virtual void load_parameter_states(const State& states) = 0;

  const at::Tensor& parameter(size_t index) const { return parameters_[index].tensor; }
  /// Whether a step may be to update it, which takes a state.
  bool is_trained(size_t index) const {
    return parameter(index).requires_grad() || parameter(index).mutable_grad().defined();
  }
  /// Throws Error "optim.parameters".
  void check_parameters() const;
  /// Throws Error "optim.state.shape" for a state's tensor, what it keeps as `slot` for each element
  /// of the parameter, that is of another whole or lacks some of the parameter's elements.
  static void check_shape(std::string_view slot, const NamedTensor& parameter,
                          const State::Value& saved);

 private:
  /// What state and gradients are laid out for.
  struct Layout {
    explicit Layout(const at::Tensor& tensor)
        : type(tensor.scalar_type()), device(tensor.device()), sizes(tensor.sizes().vec()) {}
    bool is_of(const at::Tensor& tensor) const {
      return tensor.sizes().equals(sizes) && tensor.scalar_type() == type &&
             tensor.device() == device;
    }
    at::ScalarType type;
    at::Device device;
    std::vector<int64_t> sizes;
  };

  std::string name_;
  std::vector<NamedTensor> parameters_;
  std::vector<Layout> layouts_;  ///< of the parameters, as they were when this was built
  std::vector<ParameterGroup> groups_;
};

/// The optimizer that one description (config.list() of size 1) asks for, over those of the
/// parameters that its pattern selects; frozen ones are trained from when they are not. Fused where
/// every parameter is of a floating type and on a CPU or CUDA device, else the class of
/// torch::optim. Throws Error "optim.parameters" when no parameter is left, "optim.group" for a
/// group whose pattern matches none, "optim.options" for values outside their range.
LEVIN_API std::unique_ptr<Optimizer> build_optimizer(const OptimizerConfig& config,
                                                     std::vector<NamedTensor> parameters);

}  // namespace levin::optim
