#pragma once
// Optimizer: updates parameters from their gradients and keeps the optimizer state by parameter
// name. build_optimizer makes one from an OptimizerConfig after the strategy has placed the
// parameters.
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

/// A parameter group: parameters that share learning rate and weight decay.
struct ParameterGroup {
  std::string pattern;           ///< pattern of the parameter names; "*" for the last group
  double lr = 0.0;               ///< learning rate of the next step; a schedule writes it
  double initial_lr = 0.0;       ///< learning rate before any schedule
  double weight_decay = 0.0;     ///< weight decay
  std::vector<size_t> members;   ///< indices of its parameters in Optimizer::parameters()
  double momentum = 0.0;         ///< momentum; for Adam and AdamW the first beta
  bool follows_schedule = true;  ///< false: its learning rate is set by a callback, not a schedule
};

/// Numbers of the parts of an optimizer (parameters that it updates together) that a step has
/// updated.
using Moved = std::vector<size_t>;

/// A function that computes loss and gradients again and returns the loss, as the closure of
/// torch.optim.Optimizer.step.
using Closure = std::function<at::Tensor()>;

/// An optimizer. It follows torch.optim.Optimizer, but keeps its state by parameter name.
class LEVIN_API Optimizer {
 public:
  /// name: the optimizer's, as in checkpoints. Each parameter is a member of one of the groups.
  Optimizer(std::string name, std::vector<NamedTensor> parameters,
            std::vector<ParameterGroup> groups);
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates the parameters once. A parameter without a gradient, and its step count, stay
  /// unchanged. A frozen parameter has no state until it is unfrozen. Throws Error
  /// "optim.parameters" if a parameter has another shape, dtype or device than when this optimizer
  /// was built.
  virtual void step() = 0;
  /// Returns whether a step computes the loss itself, maybe several times (LBFGS).
  virtual bool evaluates_losses() const { return false; }
  /// Sets the closure that the next step() calls, for an optimizer that evaluates losses.
  virtual void set_closure(Closure closure);
  /// Splits later steps into waves, so that one wave can be updated while the gradients of the next
  /// are still being reduced. The caller then calls step_wave(0), step_wave(1), ...; step() still
  /// updates all of them. waves[i] is the wave of parameters()[i]. Returns false, and changes
  /// nothing, if this optimizer cannot split its steps.
  virtual bool set_waves(std::vector<int64_t> waves);
  /// Updates the parameters of one wave. Without set_waves it updates all, as step() does.
  virtual void step_wave(int64_t wave);
  /// Prepares for steps that are recorded and replayed, as PyTorch's option capturable. The numbers
  /// that change between steps (step counts, learning rates) are then read from tensors, so that
  /// the recorded operators stay valid. Returns false if this optimizer computes on the host.
  virtual bool set_capturable(bool capturable);
  /// Writes the numbers of the coming step into the tensors that a replay reads. It counts nothing,
  /// so it may also be called if no replay follows.
  virtual void before_replay() {}
  /// Returns the parts that the last step() updated, for replayed(). Throws Error
  /// "optim.capturable" unless set_capturable(true) returned true.
  virtual Moved moved() const;
  /// Counts, on the host, a replay of a step that updated these parts. It must be called after each
  /// replay, as long as layout() has not changed since the recording.
  virtual void replayed(const Moved& moved);
  /// Returns the indices of parameters that other code has written since the last step, if this
  /// optimizer keeps copies of them (master weights).
  virtual std::vector<size_t> written() const { return {}; }
  /// Notes that the replayed code writes these parameters after the step. It is called after
  /// replayed().
  virtual void note_written(const std::vector<size_t>&) {}
  /// Returns a number that changes whenever recorded steps become invalid.
  virtual int64_t layout() const { return 0; }
  /// Returns the tensors of the optimizer state, named as "exp_avg of net.0.weight", for graphs of
  /// its steps.
  virtual std::vector<NamedTensor> named_state() const { return {}; }
  /// Drops all gradients, as PyTorch's zero_grad(set_to_none=True).
  void zero_grad();

  /// Name of the optimizer, which its state must match.
  const std::string& name() const { return name_; }
  /// Parameters, frozen ones included.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  /// Parameter groups, to change their learning rates.
  std::vector<ParameterGroup>& groups() { return groups_; }
  /// Parameter groups.
  const std::vector<ParameterGroup>& groups() const { return groups_; }

  /// Returns {"name", "groups": {"0": {"pattern", "lr", "initial_lr"}}, "parameters": {name:
  /// state}}. The tensors are the optimizer's own, not copies. State of a parameter that is sharded
  /// over ranks (shard/sharded_tensor.h) is a TensorSlice if it has one value per element.
  State state_dict() const;
  /// Loads the state of the same optimizer over parameters of the same names. Parameters that are
  /// frozen now may be missing. Its tensors are full, or contain at least the shard of this rank.
  /// Throws Error "optim.state.kind", "optim.state.names" (which lists missing and unexpected
  /// names), "optim.state.groups" or "optim.state.shape"; the optimizer is unchanged then.
  void load_state_dict(const State& state);

 protected:
  /// Returns the state of each parameter by name.
  virtual State parameter_states() const = 0;
  /// Loads the state of each parameter by name. The names are those of parameters(); frozen
  /// parameters may be missing.
  virtual void load_parameter_states(const State& states) = 0;

  /// Returns a parameter.
  const at::Tensor& parameter(size_t index) const { return parameters_[index].tensor; }
  /// Returns whether a step may update the parameter, which then needs optimizer state.
  bool is_trained(size_t index) const {
    return parameter(index).requires_grad() || parameter(index).mutable_grad().defined();
  }
  /// Throws Error "optim.parameters" if a parameter has another shape, dtype or device than when
  /// this was built.
  void check_parameters() const;
  /// Checks a tensor of a state that has one value per element of a parameter. slot: its name, such
  /// as "exp_avg". Throws Error "optim.state.shape" if the full sizes differ or if it lacks some of
  /// the parameter's elements.
  static void check_shape(std::string_view slot, const NamedTensor& parameter,
                          const State::Value& saved);

 private:
  /// Dtype, device and sizes for which state and gradients were made.
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
  std::vector<Layout> layouts_;  ///< layouts of the parameters when this was built
  std::vector<ParameterGroup> groups_;
};

/// Makes the optimizer that one description (config.list() of size 1) asks for, over the parameters
/// that its pattern selects. Frozen parameters are trained once they are unfrozen. The optimizer is
/// fused if every parameter has a floating dtype and is on a CPU or CUDA device; else it is the
/// class of torch::optim. Throws Error "optim.parameters" if no parameter is left, "optim.group"
/// for a group whose pattern matches no parameter, and "optim.options" for values outside their
/// range.
LEVIN_API std::unique_ptr<Optimizer> build_optimizer(const OptimizerConfig& config,
                                                     std::vector<NamedTensor> parameters);

}  // namespace levin::optim
