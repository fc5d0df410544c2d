#include "levin/optim/offload/offload_rule.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/optim/fused.h"
#include "levin/optim/plain.h"

namespace levin::optim {
namespace {

using NamedValues = std::vector<std::pair<std::string_view, State::Value>>;

/// SGD, Adam and AdamW.
class FusedOffload final : public OffloadRule {
 public:
  FusedOffload(std::string name, OptimizerConfig::Kind kind, bool has_masters)
      : name_(std::move(name)), kind_(std::move(kind)), has_masters_(has_masters) {}

  std::vector<SlotShape> slots_of(const at::Tensor& like) const override {
    std::vector<SlotShape> slots;
    for (const std::string_view name : fused_slots(kind_)) slots.push_back({name, like});
    return slots;
  }
  bool cuts(at::ScalarType) const override { return true; }
  bool begins_with_state() const override { return true; }
  bool has_waves() const override { return !has_masters_; }

  void update(std::vector<UpdatePiece>& pieces, ParameterGroup& group, size_t) override {
    // The first step of SGD is an option of the call.
    update_those(pieces, group, /*is_first=*/true);
    update_those(pieces, group, /*is_first=*/false);
  }

  State to_state(size_t, const SlotCounts& counts, const NamedValues& slots) const override {
    State state;
    state.set("step", counts.steps);
    for (const auto& [name, value] : slots) state.set(name, value);
    return state;
  }

  std::optional<SavedSlots> of_state(const State& state,
                                     const std::vector<SlotShape>& slots) const override {
    const int64_t steps = state.integer("step");
    if (steps == 0 && (slots.empty() || !state.contains(slots.front().name))) return std::nullopt;
    SavedSlots saved{{.steps = steps, .has_state = true}, {}};
    for (const SlotShape& slot : slots) saved.slots.push_back(state.tensor_or_slice(slot.name));
    return saved;
  }

 private:
  void update_those(const std::vector<UpdatePiece>& pieces, const ParameterGroup& group,
                    bool is_first) const {
    std::map<int64_t, at::Tensor> counts;  // kernels of a GPU read them there: one for each number
    const auto step_count_of = [&](const UpdatePiece& piece) {
      at::Tensor& count = counts[piece.counts.steps];
      if (!count.defined()) {
        count = at::full({}, piece.counts.steps, piece.values.options().dtype(at::kFloat));
      }
      return count;
    };
    std::vector<at::Tensor> parameters, gradients, step_counts;
    std::vector<std::vector<at::Tensor>> slots(fused_slots(kind_).size());
    for (const UpdatePiece& piece : pieces) {
      if ((piece.counts.steps == 1) != is_first) continue;
      parameters.push_back(piece.values);
      gradients.push_back(dense_gradient(name_, piece.values, piece.gradient));
      step_counts.push_back(step_count_of(piece));
      for (size_t slot = 0; slot < slots.size(); ++slot) slots[slot].push_back(piece.slots[slot]);
    }
    if (parameters.empty()) return;
    call_fused(kind_, group,
               {.parameters = parameters,
                .gradients = gradients,
                .slots = slots,
                .step_counts = step_counts,
                .is_first_step = is_first},
               group.lr);
  }

  std::string name_;
  OptimizerConfig::Kind kind_;
  bool has_masters_;
};

/// NAdam, RAdam, Lion, Adafactor and Muon.
class PlainOffload final : public OffloadRule {
 public:
  explicit PlainOffload(std::unique_ptr<PlainRule> rule) : rule_(std::move(rule)) {}

  std::vector<SlotShape> slots_of(const at::Tensor& like) const override {
    std::vector<SlotShape> slots;
    for (const auto& [name, tensor] : rule_->slots_of(like)) slots.push_back({name, tensor});
    return slots;
  }
  /// ATen's loops over half types round elements at the end of a thread's part otherwise than those before.
  bool cuts(at::ScalarType type) const override {
    return !rule_->needs_whole() && (type == at::kFloat || type == at::kDouble);
  }

  void update(std::vector<UpdatePiece>& pieces, ParameterGroup& group, size_t) override {
    for (UpdatePiece& piece : pieces) {
      PlainState state{piece.counts.steps, {}, piece.counts.mu_product};
      const auto shapes = rule_->slots_of(piece.values.to(at::kMeta));
      for (size_t i = 0; i < shapes.size(); ++i) {
        state.slots.emplace_back(shapes[i].first, piece.slots[i]);
      }
      rule_->update(piece.values, piece.gradient, state, group);
      piece.counts.mu_product = state.mu_product;
    }
  }

  State to_state(size_t, const SlotCounts& counts, const NamedValues& slots) const override {
    State state;
    state.set("step", counts.steps);
    if (!counts.has_state) return state;
    for (const auto& [name, value] : slots) state.set(name, value);
    if (rule_->keeps_product()) state.set("mu_product", counts.mu_product);
    return state;
  }

  std::optional<SavedSlots> of_state(const State& state,
                                     const std::vector<SlotShape>& slots) const override {
    SavedSlots saved{{.steps = state.integer("step"), .has_state = true}, {}};
    if (saved.counts.steps == 0) return std::nullopt;
    if (rule_->keeps_product()) saved.counts.mu_product = state.number("mu_product");
    for (const SlotShape& slot : slots) saved.slots.push_back(state.tensor_or_slice(slot.name));
    return saved;
  }

 private:
  std::unique_ptr<PlainRule> rule_;
};

}  // namespace

std::unique_ptr<OffloadRule> make_offload_rule(const OptimizerConfig& config,
                                               const std::vector<NamedTensor>& parameters,
                                               const std::vector<ParameterGroup>& groups,
                                               bool has_masters) {
  if (auto rule = make_plain_rule(config.kind())) {
    check_plain(config, *rule, parameters);
    return std::make_unique<PlainOffload>(std::move(rule));
  }
  const bool is_torch = std::holds_alternative<TorchOptimizerOptions>(config.kind());
  const bool is_sgd = std::holds_alternative<SgdOptions>(config.kind());
  const bool fuses = !is_torch && std::ranges::all_of(parameters, [&](const NamedTensor& one) {
    const bool is_half = at::isReducedFloatingType(one.tensor.scalar_type()) && !has_masters;
    return can_fuse(one.tensor) &&
           !(is_sgd && is_half && one.tensor.is_cpu());  // as in build_optimizer
  });
  if (!fuses) return make_torch_offload_rule(config, groups);
  return std::make_unique<FusedOffload>(config.name(), config.kind(), has_masters);
}

}  // namespace levin::optim
