#pragma once
// OffloadRule: how an optimizer whose state is in a file updates one piece of a parameter, and what a checkpoint has
// of it. There is one for each class of optimizers in memory; both give the same bits and the same checkpoints.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/state.h"
#include "levin/optim/optimizer.h"

namespace levin::optim {

/// A tensor of a parameter's state.
struct SlotShape {
  std::string_view name;
  at::Tensor like;    ///< on the meta device: sizes, strides and dtype
  double fill = 0.0;  ///< value before the first step
};

/// The numbers of a parameter's state.
struct SlotCounts {
  int64_t steps = 0;
  double mu_product = 1.0;  ///< of NAdam
  bool has_state =
      false;  ///< as the optimizer in memory has one: it was updated, or its class begins with one
};

/// A piece of a parameter in the middle of a step: all of it, or consecutive elements as one dim.
struct UpdatePiece {
  at::Tensor values;
  at::Tensor gradient;
  std::vector<at::Tensor> slots;
  SlotCounts
      counts;  ///< steps counts this one; has_state says whether the slots were written before
};

/// A parameter's state in a checkpoint.
struct SavedSlots {
  SlotCounts counts;
  std::vector<State::Value> slots;  ///< in the order of OffloadRule::slots_of
};

class OffloadRule {
 public:
  virtual ~OffloadRule() = default;
  /// like: the tensor that is updated, on the meta device.
  virtual std::vector<SlotShape> slots_of(const at::Tensor& like) const = 0;
  /// Returns whether consecutive elements of this type may be updated one after the other, with the same bits.
  virtual bool cuts(at::ScalarType type) const = 0;
  /// Returns whether parameters have a state before their first step.
  virtual bool begins_with_state() const { return false; }
  /// Returns whether frozen parameters have one too.
  virtual bool takes_frozen() const { return false; }
  /// Returns whether a part of the parameters may be updated before the others have gradients.
  virtual bool has_waves() const { return false; }
  /// Updates pieces of parameters that are in one group.
  virtual void update(std::vector<UpdatePiece>& pieces, ParameterGroup& group, size_t number) = 0;
  /// Returns a parameter's state for a checkpoint; slots are undefined where it has none.
  virtual State to_state(
      size_t parameter, const SlotCounts& counts,
      const std::vector<std::pair<std::string_view, State::Value>>& slots) const = 0;
  /// Reads it; nothing where the parameter has none.
  virtual std::optional<SavedSlots> of_state(const State& state,
                                             const std::vector<SlotShape>& slots) const = 0;
  /// Throws an Error for states of other parameters, before anything is loaded.
  virtual void check_states(const std::vector<NamedTensor>&, const State&) const {}
  /// Adds what all parameters have in common to the first one's state, and reads it.
  virtual void add_common(const std::vector<NamedTensor>&, const std::vector<ParameterGroup>&,
                          State&) {}
  virtual void load_common(const std::vector<NamedTensor>&, const std::vector<ParameterGroup>&,
                           const State&) {}
};

/// Returns the rule of a description. has_masters: it updates float32 copies. Throws Error "optim.offload" for
/// classes of torch::optim whose state it does not know (LBFGS), and what building the optimizer in memory throws.
std::unique_ptr<OffloadRule> make_offload_rule(const OptimizerConfig& config,
                                               const std::vector<NamedTensor>& parameters,
                                               const std::vector<ParameterGroup>& groups,
                                               bool has_masters);

/// One for the classes of torch::optim.
std::unique_ptr<OffloadRule> make_torch_offload_rule(const OptimizerConfig& config,
                                                     const std::vector<ParameterGroup>& groups);

}  // namespace levin::optim
