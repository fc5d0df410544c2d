#include "levin/optim/fused.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "levin/base/check.h"
#include "levin/optim/flat.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {
namespace {

constexpr std::array<std::string_view, 1> kSgdSlots = {"momentum_buffer"};
constexpr std::array<std::string_view, 3> kAdamSlots = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};

/// Parameters of one group, wave, dtype and device that have taken the same number of steps: what
/// one fused call updates. In a plain run each group stays one cohort for ever.
struct Cohort {
  size_t group = 0;
  int64_t wave = 0;
  int64_t steps = 0;
  std::vector<size_t> members;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;           // filled for the time of a step
  std::vector<std::vector<at::Tensor>> slots;  // [slot][member]
  at::Tensor step_count;                       // float 0-dim, shared by all members
  std::vector<at::Tensor> step_counts;         // the same tensor once for each member
  at::Tensor lr;                               // double 0-dim on the CPU, where it is capturable
  bool moved = false;                          // in the last step
};

class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(const OptimizerConfig& config, std::vector<NamedTensor> parameters,
                 std::vector<ParameterGroup> groups)
      : Optimizer(config.name(), std::move(parameters), std::move(groups)),
        kind_(config.kind()),
        steps_(this->parameters().size(), 0),
        waves_(this->parameters().size(), 0),
        taken_up_(this->parameters().size(), false),
        slots_(slot_names().size(), std::vector<at::Tensor>(this->parameters().size())) {
    for (size_t i = 0; i < this->parameters().size(); ++i) waiting_.push_back(i);
    take_up_unfrozen();
  }

  void step() override {
    check_parameters();
    step_if([](const Cohort&) { return true; });
  }

  bool set_waves(std::vector<int64_t> waves) override {
    steps_ = current_steps();
    waves_ = std::move(waves);
    form_cohorts();
    return true;
  }

  void step_wave(int64_t wave) override {
    if (wave == 0) check_parameters();
    step_if([wave](const Cohort& cohort) { return cohort.wave == wave; });
  }

  bool set_capturable(bool capturable) override {
    capturable_ = capturable;
    return true;
  }

  void before_replay() override {
    for (Cohort& cohort : cohorts_) give_numbers(cohort, cohort.steps + 1);
  }

  Moved moved() const override {
    if (!capturable_) return Optimizer::moved();
    Moved moved;
    for (size_t i = 0; i < cohorts_.size(); ++i) {
      if (cohorts_[i].moved) moved.push_back(i);
    }
    return moved;
  }

  void replayed(const Moved& moved) override {
    for (const size_t i : moved) cohorts_[i].steps += 1;
  }

  int64_t layout() const override { return layout_; }

  std::vector<NamedTensor> named_state() const override {
    std::vector<NamedTensor> state;
    for (size_t i = 0; i < parameters().size(); ++i) {
      for (size_t slot = 0; taken_up_[i] && slot < slots_.size(); ++slot) {
        state.push_back(
            {fmt::format("{} of {}", slot_names()[slot], parameters()[i].name), slots_[slot][i]});
      }
    }
    for (size_t i = 0; i < cohorts_.size(); ++i) {
      state.push_back({fmt::format("step of {} {}", name(), i), cohorts_[i].step_count});
      state.push_back({fmt::format("lr of {} {}", name(), i), cohorts_[i].lr});
    }
    return state;
  }

 protected:
  State parameter_states() const override {
    State states;
    std::vector<int64_t> steps = current_steps();
    for (size_t i = 0; i < parameters().size(); ++i) {
      State state;
      state.set("step", steps[i]);
      for (size_t slot = 0; taken_up_[i] && slot < slots_.size(); ++slot) {
        state.set(slot_names()[slot], shard::state_value(parameter(i), slots_[slot][i]));
      }
      states.set(parameters()[i].name, std::move(state));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    std::vector<size_t> saved;
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (has_state(states, parameters()[i])) saved.push_back(i);
    }
    const at::NoGradGuard no_grad;
    take_up(saved);
    steps_.assign(parameters().size(), 0);
    for (const std::vector<at::Tensor>& slot : slots_) {
      for (const at::Tensor& tensor : slot) {
        if (tensor.defined()) tensor.zero_();
      }
    }
    for (const size_t i : saved) {
      const State& state = states.child(parameters()[i].name);
      steps_[i] = state.integer("step");
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        const State::Value& saved_slot = state.tensor_or_slice(slot_names()[slot]);
        slots_[slot][i].copy_(shard::own_part(parameter(i), saved_slot));
      }
    }
    form_cohorts();
  }

 private:
  /// Returns whether `states` has a state to load; a parameter that was always frozen has none.
  bool has_state(const State& states, const NamedTensor& parameter) const {
    if (!states.contains(parameter.name)) return false;
    const State& state = states.child(parameter.name);
    const bool never_trained = slots_.empty() || !state.contains(slot_names().front());
    if (state.integer("step") == 0 && never_trained) return false;
    for (const std::string_view slot : slot_names()) {
      check_shape(slot, parameter, state.tensor_or_slice(slot));
    }
    return true;
  }

  /// A state for those of them that have none yet.
  void take_up(const std::vector<size_t>& indices) {
    std::vector<size_t> fresh;
    std::vector<at::Tensor> tensors;
    for (const size_t i : indices) {
      if (taken_up_[i]) continue;
      taken_up_[i] = true;
      fresh.push_back(i);
      tensors.push_back(parameter(i));
    }
    for (std::vector<at::Tensor>& slot : slots_) {
      std::vector<at::Tensor> zeros = flat_zeros_like(tensors);
      for (size_t i = 0; i < fresh.size(); ++i) slot[fresh[i]] = std::move(zeros[i]);
    }
    std::erase_if(waiting_, [&](size_t i) { return taken_up_[i]; });
  }

  void take_up_unfrozen() {
    std::vector<size_t> unfrozen;
    for (const size_t i : waiting_) {
      if (is_trained(i)) unfrozen.push_back(i);
    }
    if (unfrozen.empty()) return;
    take_up(unfrozen);
    steps_ = current_steps();
    form_cohorts();
  }

  template <class Taken>
  void step_if(const Taken& taken) {
    const at::NoGradGuard no_grad;
    take_up_unfrozen();
    for (Cohort& cohort : cohorts_) {
      if (taken(cohort) && !collect_gradients(cohort)) {
        split();
        return step_if(taken);
      }
    }
    for (Cohort& cohort : cohorts_) {
      if (!taken(cohort)) continue;
      cohort.moved = !cohort.gradients.empty();
      if (cohort.moved) update(cohort);
      cohort.gradients.clear();
    }
  }

  std::span<const std::string_view> slot_names() const { return fused_slots(kind_); }

  std::vector<int64_t> current_steps() const {
    std::vector<int64_t> steps(parameters().size(), 0);
    for (const Cohort& cohort : cohorts_) {
      for (const size_t member : cohort.members) steps[member] = cohort.steps;
    }
    return steps;
  }

  /// Forms the cohorts from steps_ and, in the middle of a step, from the parameters that have a
  /// gradient now.
  void form_cohorts(bool by_gradient = false) {
    using Key = std::tuple<size_t, int64_t, at::ScalarType, std::string, int64_t, bool>;
    std::map<Key, Cohort> cohorts;
    for (size_t group = 0; group < groups().size(); ++group) {
      for (const size_t member : groups()[group].members) {
        if (!taken_up_[member]) continue;
        const at::Tensor& tensor = parameter(member);
        const bool moves = !by_gradient || tensor.grad().defined();
        Cohort& cohort = cohorts[{group, waves_[member], tensor.scalar_type(),
                                  tensor.device().str(), steps_[member], moves}];
        cohort.group = group;
        cohort.wave = waves_[member];
        cohort.steps = steps_[member];
        cohort.members.push_back(member);
      }
    }
    ++layout_;
    cohorts_.clear();
    for (auto& [key, cohort] : cohorts) cohorts_.push_back(complete(std::move(cohort)));
  }

  Cohort complete(Cohort cohort) const {
    cohort.slots.resize(slots_.size());
    for (const size_t member : cohort.members) {
      cohort.parameters.push_back(parameter(member));
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        cohort.slots[slot].push_back(slots_[slot][member]);
      }
    }
    const at::Device device =
        counts_on_host(cohort) ? at::Device(at::kCPU) : cohort.parameters.front().device();
    cohort.step_count = at::full({}, cohort.steps, at::TensorOptions(at::kFloat).device(device));
    cohort.step_counts.assign(cohort.members.size(), cohort.step_count);
    cohort.lr = at::zeros({}, at::kDouble);
    return cohort;
  }

  void split() {
    steps_ = current_steps();
    form_cohorts(/*by_gradient=*/true);
  }

  /// False when some members have a gradient and some have none.
  bool collect_gradients(Cohort& cohort) {
    cohort.gradients.clear();
    for (const at::Tensor& tensor : cohort.parameters) {
      const at::Tensor& gradient = tensor.mutable_grad();
      if (gradient.defined()) cohort.gradients.push_back(dense_gradient(name(), tensor, gradient));
    }
    return cohort.gradients.empty() || cohort.gradients.size() == cohort.members.size();
  }

  /// A program of XLA is given its numbers by the host.
  static bool counts_on_host(const Cohort& cohort) { return cohort.parameters.front().is_xla(); }

  /// For step number `step`: what the kernels read of the host.
  void give_numbers(Cohort& cohort, int64_t step) {
    if (capturable_) *cohort.lr.mutable_data_ptr<double>() = groups()[cohort.group].lr;
    if (counts_on_host(cohort)) cohort.step_count.fill_(step);
  }

  void update(Cohort& cohort) {
    give_numbers(cohort, ++cohort.steps);
    // By an operator, so that a graph of the step counts on.
    if (!counts_on_host(cohort) && !std::holds_alternative<SgdOptions>(kind_)) {
      cohort.step_count.add_(1);
    }
    if (capturable_) {
      apply(cohort, cohort.lr);
    } else {
      apply(cohort, groups()[cohort.group].lr);
    }
  }

  /// LearningRate: a number, or a tensor of one.
  template <class LearningRate>
  void apply(Cohort& cohort, const LearningRate& lr) {
    call_fused(kind_, groups()[cohort.group],
               {.parameters = cohort.parameters,
                .gradients = cohort.gradients,
                .slots = cohort.slots,
                .step_counts = cohort.step_counts,
                .is_first_step = cohort.steps == 1},
               lr);
    // The fused kernels do not say that they write, and a backward of a graph from before the step
    // would be wrong without a word.
    for (const at::Tensor& parameter : cohort.parameters) {
      torch::autograd::impl::bump_version(parameter);
    }
  }

  OptimizerConfig::Kind kind_;
  std::vector<int64_t> steps_;   // by parameter; current in cohorts_ between rebuilds
  std::vector<int64_t> waves_;   // by parameter
  std::vector<bool> taken_up_;   // by parameter: has a state
  std::vector<size_t> waiting_;  // parameters without state, frozen all the time
  std::vector<std::vector<at::Tensor>> slots_;  // [slot][parameter], flat
  std::vector<Cohort> cohorts_;
  int64_t layout_ = 0;
  bool capturable_ = false;
};

}  // namespace

std::span<const std::string_view> fused_slots(const OptimizerConfig::Kind& kind) {
  if (const auto* sgd = std::get_if<SgdOptions>(&kind)) {
    return std::span(kSgdSlots).first(sgd->momentum != 0.0 ? 1 : 0);
  }
  const auto* adam = std::get_if<AdamOptions>(&kind);
  const bool amsgrad = adam != nullptr ? adam->amsgrad : std::get<AdamWOptions>(kind).amsgrad;
  return std::span(kAdamSlots).first(amsgrad ? 3 : 2);
}

template <class LearningRate>
void call_fused(const OptimizerConfig::Kind& kind, const ParameterGroup& group,
                const FusedCall& call, const LearningRate& lr) {
  if (const auto* sgd = std::get_if<SgdOptions>(&kind)) {
    const at::TensorList buffers = sgd->momentum != 0.0 ? call.slots[0] : at::TensorList();
    at::_fused_sgd_(call.parameters, call.gradients, buffers, group.weight_decay, sgd->momentum, lr,
                    sgd->dampening, sgd->nesterov, sgd->maximize, call.is_first_step);
  } else if (const auto* adam = std::get_if<AdamOptions>(&kind)) {
    at::_fused_adam_(call.parameters, call.gradients, call.slots[0], call.slots[1],
                     adam->amsgrad ? call.slots[2] : at::TensorList(), call.step_counts, lr,
                     adam->betas.first, adam->betas.second, group.weight_decay, adam->eps,
                     adam->amsgrad, adam->maximize);
  } else {
    const auto& adamw = std::get<AdamWOptions>(kind);
    at::_fused_adamw_(call.parameters, call.gradients, call.slots[0], call.slots[1],
                      adamw.amsgrad ? call.slots[2] : at::TensorList(), call.step_counts, lr,
                      adamw.betas.first, adamw.betas.second, group.weight_decay, adamw.eps,
                      adamw.amsgrad, adamw.maximize);
  }
}
template void call_fused(const OptimizerConfig::Kind&, const ParameterGroup&, const FusedCall&,
                         const double&);
template void call_fused(const OptimizerConfig::Kind&, const ParameterGroup&, const FusedCall&,
                         const at::Tensor&);

at::Tensor dense_gradient(std::string_view optimizer, const at::Tensor& parameter,
                          const at::Tensor& gradient) {
  if (gradient.layout() == at::kStrided && gradient.strides() == parameter.strides()) {
    return gradient;
  }
  LEVIN_CHECK(gradient.layout() == at::kStrided, "optim.sparse",
              "{} supports dense gradients only, but a parameter of shape {} got a sparse one; "
              "use optim::torch_optimizer or an embedding without sparse gradients",
              optimizer, c10::str(parameter.sizes()));
  at::Tensor laid_out = at::empty_strided(parameter.sizes(), parameter.strides(),
                                          parameter.options().requires_grad(false));
  return laid_out.copy_(gradient);
}

bool can_fuse(const at::Tensor& parameter) {
  return parameter.layout() == at::kStrided && at::isFloatingType(parameter.scalar_type()) &&
         (parameter.is_cpu() || parameter.is_cuda() || parameter.is_xla()) &&
         parameter.is_non_overlapping_and_dense();
}

std::unique_ptr<Optimizer> make_fused(const OptimizerConfig& config,
                                      std::vector<NamedTensor> parameters,
                                      std::vector<ParameterGroup> groups) {
  return std::make_unique<FusedOptimizer>(config, std::move(parameters), std::move(groups));
}

}  // namespace levin::optim
