#include "levin/optim/offload/offloaded.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/optim/fused.h"
#include "levin/optim/offload/offload_rule.h"
#include "levin/optim/offload/portions.h"
#include "levin/optim/offload/state_memory.h"
#include "levin/optim/write_mark.h"
#include "levin/shard/sharded_tensor.h"

namespace levin::optim {
namespace {

constexpr int64_t kPlaceAlignment = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

at::Tensor shape_of(const at::Tensor& tensor, at::ScalarType type) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions(type).device(at::kMeta));
}

/// `count` elements of a dense tensor from `begin` on, in the order of its memory.
at::Tensor elements(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return at::empty({0}, tensor.options().requires_grad(false))
      .set_(tensor.storage(), tensor.storage_offset() + begin, {count}, {1});
}

class OffloadedOptimizer final : public Optimizer {
 public:
  OffloadedOptimizer(const OptimizerConfig& config, std::unique_ptr<OffloadRule> rule,
                     std::vector<NamedTensor> parameters, std::vector<ParameterGroup> groups,
                     bool has_masters)
      : Optimizer(config.name(), std::move(parameters), std::move(groups)),
        memory_(config.state_memory()),
        rule_(std::move(rule)),
        has_masters_(has_masters),
        kept_(this->parameters().size()),
        waves_(this->parameters().size(), 0) {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& one : this->parameters()) {
      check(one);
      marks_.emplace_back(one.tensor);
    }
    take_up_trained();
  }

  void step() override {
    check_parameters();
    step_if([](size_t) { return true; });
  }

  bool set_waves(std::vector<int64_t> waves) override {
    if (!rule_->has_waves()) return false;
    waves_ = std::move(waves);
    return true;
  }

  void step_wave(int64_t wave) override {
    if (wave == 0) check_parameters();
    step_if([&](size_t i) { return waves_[i] == wave; });
  }

  std::vector<NamedTensor> named_state() const override {
    std::vector<NamedTensor> all;
    memory_->wait();
    for (size_t i = 0; i < parameters().size(); ++i) {
      for (const SlotPlace& place : kept_[i].places) {
        all.push_back({fmt::format("{} of {}", place.name, parameters()[i].name), at_rest(place)});
      }
    }
    return all;
  }

 protected:
  State parameter_states() const override {
    memory_->wait();
    State states;
    for (size_t i = 0; i < parameters().size(); ++i) {
      const Kept& kept = kept_[i];
      std::vector<std::pair<std::string_view, State::Value>> slots;
      for (const SlotPlace& place : own_slots(kept)) {
        if (kept.counts.has_state) slots.emplace_back(place.name, value_of(i, place));
      }
      State state = rule_->to_state(i, kept.counts, slots);
      if (i == 0) rule_->add_common(parameters(), groups(), state);
      if (has_master(i)) state.set("master", value_of(i, kept.places.back()));
      states.set(parameters()[i].name, std::move(state));
    }
    return states;
  }

  void load_parameter_states(const State& states) override {
    const at::NoGradGuard no_grad;
    rule_->check_states(parameters(), states);
    std::vector<std::optional<SavedSlots>> saved(parameters().size());
    std::vector<size_t> taken;
    for (size_t i = 0; i < parameters().size(); ++i) {
      saved[i] = saved_in(states, i);
      if (saved[i]) taken.push_back(i);
    }
    memory_->forget();
    take_up(taken);
    if (states.contains(parameters().front().name)) {
      rule_->load_common(parameters(), groups(), states.child(parameters().front().name));
    }
    for (size_t i = 0; i < parameters().size(); ++i) load(i, saved[i], states);
  }

 private:
  /// A parameter's state.
  struct Kept {
    bool is_taken_up = false;
    bool is_cut = false;
    std::vector<SlotPlace> places;  ///< of the slots, and last of the master copy
    /// The same, and last of the parameter's own values if they are in the file (--offload parameters).
    std::vector<SlotPlace> step_places;
    bool has_values = false;  ///< that last one is there
    SlotCounts counts;
  };

  at::ScalarType type_of(size_t index) const {
    return has_masters_ ? at::kFloat : parameter(index).scalar_type();
  }
  bool has_master(size_t index) const { return has_masters_ && kept_[index].is_taken_up; }
  std::span<const SlotPlace> own_slots(const Kept& kept) const {
    const bool has_last = has_masters_ && kept.is_taken_up;
    return std::span(kept.places).first(kept.places.size() - (has_last ? 1 : 0));
  }
  at::Tensor at_rest(const SlotPlace& place) const { return memory_->at_rest(place); }
  bool is_elementwise(size_t index, const SlotPlace& place) const {
    return parameter(index).sizes() == at::IntArrayRef(place.sizes);
  }
  State::Value value_of(size_t index, const SlotPlace& place) const {
    if (!is_elementwise(index, place)) return at_rest(place);
    return shard::state_value(parameter(index), at_rest(place));
  }

  void check(const NamedTensor& one) const {
    LEVIN_CHECK(one.tensor.device() == memory_->device(), "optim.offload",
                "{} is on {}, but --offload optimizer updates its state on {}; move the module "
                "there before "
                "you prepare its optimizer",
                one.name, one.tensor.device().str(), memory_->device().str());
    LEVIN_CHECK(
        one.tensor.layout() == at::kStrided && one.tensor.is_non_overlapping_and_dense(),
        "optim.offload",
        "{} has memory with gaps or elements that share memory, whose state --offload cannot "
        "keep; make it contiguous before you prepare its optimizer",
        one.name);
  }

  // State in the file.

  void take_up_trained() {
    std::vector<size_t> trained;
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (is_trained(i) || rule_->takes_frozen()) trained.push_back(i);
    }
    take_up(trained);
  }

  /// Takes space for those that have none yet: slot by slot, so that a step reads and writes long runs.
  void take_up(const std::vector<size_t>& indices) {
    std::vector<size_t> fresh;
    std::map<size_t, std::vector<SlotShape>> shapes;
    int64_t bytes = 0;
    for (const size_t i : indices) {
      if (kept_[i].is_taken_up) continue;
      fresh.push_back(i);
      const at::Tensor like = shape_of(parameter(i), type_of(i));
      shapes[i] = rule_->slots_of(like);
      if (has_masters_) shapes[i].push_back({"master", like});
      for (const SlotShape& shape : shapes[i]) bytes += aligned(bytes_of(shape));
      check_fits(i, shapes[i]);
    }
    if (fresh.empty()) return;
    const int64_t begin = memory_->take(bytes);
    lay_out(fresh, shapes, begin);
    for (const size_t i : fresh) {
      Kept& kept = kept_[i];
      kept.is_taken_up = true;
      kept.counts.has_state = rule_->begins_with_state();
      kept.is_cut = rule_->cuts(type_of(i));
      for (size_t slot = 0; slot < shapes[i].size(); ++slot) {
        const double value = shapes[i][slot].fill;
        if (value != 0.0) memory_->fill(kept.places[slot], value);
      }
      kept.step_places = kept.places;
      if (auto values = place_of_values(i)) {
        kept.step_places.push_back(std::move(*values));
        kept.has_values = true;
      }
      if (!has_masters_) continue;
      memory_->copy_into(kept.places.back(), parameter(i).detach());
      marks_[i] = WriteMark(parameter(i));
    }
  }

  /// The place of a parameter's values, if they are in the file too.
  std::optional<SlotPlace> place_of_values(size_t index) const {
    const at::Tensor& values = parameter(index);
    if (values.numel() == 0) return std::nullopt;
    if (memory_->file() == nullptr) return std::nullopt;
    const auto place = files::scratch_place(values.const_data_ptr());
    if (!place || place->file != memory_->file()) return std::nullopt;
    return SlotPlace{"values",
                     place->begin,
                     values.sizes().vec(),
                     values.strides().vec(),
                     values.scalar_type(),
                     values.numel()};
  }

  static int64_t bytes_of(const SlotShape& shape) {
    return shape.like.numel() * static_cast<int64_t>(shape.like.element_size());
  }

  void lay_out(const std::vector<size_t>& fresh,
               const std::map<size_t, std::vector<SlotShape>>& shapes, int64_t begin) {
    size_t most = 0;
    for (const size_t i : fresh) most = std::max(most, shapes.at(i).size());
    for (size_t slot = 0; slot < most; ++slot) {
      for (const size_t i : fresh) {
        if (slot >= shapes.at(i).size()) continue;
        const auto& [name, like, value] = shapes.at(i)[slot];
        kept_[i].places.push_back({name, begin, like.sizes().vec(), like.strides().vec(),
                                   like.scalar_type(), like.numel()});
        begin += aligned(kept_[i].places.back().bytes());
      }
    }
  }

  void check_fits(size_t index, const std::vector<SlotShape>& shapes) const {
    if (rule_->cuts(type_of(index))) return;
    int64_t bytes = 0;
    for (const SlotShape& shape : shapes) bytes += aligned(bytes_of(shape));
    if (const auto values = place_of_values(index)) bytes += aligned(values->bytes());
    LEVIN_CHECK(
        bytes <= memory_->memory_bytes(), "optim.offload",
        "{} updates whole parameters, and the state of {} has {} bytes, but got {} bytes of "
        "memory for it; set --offload-memory-mb to at least {}",
        name(), parameters()[index].name, bytes, memory_->memory_bytes(), (bytes >> 20) + 1);
  }

  // A step.

  template <class Taken>
  void step_if(const Taken& taken) {
    const at::NoGradGuard no_grad;
    take_up_trained();
    forget_old_values();
    std::vector<PortionItem> items = items_of(taken);
    const std::vector<Portion> portions = cut_portions(items, memory_->portion_bytes());
    mu_products_.clear();
    gradient_ = {};
    for (size_t i = 0; i < portions.size(); ++i) {
      std::unique_ptr<StateMemory::Lease> lease;
      if (!portions[i].ranges.empty()) lease = memory_->lease(portions[i].ranges);
      for (size_t next = i + 1; next < std::min(i + 3, portions.size()); ++next) {
        memory_->read_ahead(portions[next].ranges);
      }
      update(portions[i], items, lease.get());
      if (lease) lease->write_back();
    }
    gradient_ = {};
    for (const PortionItem& item : items) finish(item.parameter);
    // Who reads parameters next reads the file.
    if (std::ranges::any_of(kept_, &Kept::has_values)) memory_->wait();
    // The next step begins with them.
    for (size_t i = 0; i < std::min<size_t>(2, portions.size()); ++i) {
      memory_->read_ahead(portions[i].ranges);
    }
  }

  /// Values that were read ahead are old if somebody else has written to the parameter since.
  void forget_old_values() {
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!kept_[i].has_values || marks_[i].is_of(parameter(i))) continue;
      memory_->forget();
      return;
    }
  }

  bool is_stale(size_t index) const {
    return has_master(index) && !marks_[index].is_of(parameter(index));
  }

  /// The parameters that have a gradient, and those whose copy somebody else's write has made old, in the order of
  /// the file.
  template <class Taken>
  std::vector<PortionItem> items_of(const Taken& taken) const {
    std::vector<PortionItem> items;
    for (size_t i = 0; i < parameters().size(); ++i) {
      const bool moves = parameter(i).mutable_grad().defined();
      if (!taken(i) || !(moves || is_stale(i))) continue;
      items.push_back({i, parameter(i).numel(), kept_[i].is_cut, &kept_[i].step_places});
    }
    std::ranges::stable_sort(items, {}, [](const PortionItem& item) {
      return item.slots->empty() ? 0 : item.slots->front().begin;
    });
    return items;
  }

  /// The tensor in memory of a piece's slot.
  static at::Tensor slot_in(const StateMemory::Lease& lease, const PortionPiece& piece, size_t slot,
                            const PortionItem& item) {
    const SlotPlace& place = (*item.slots)[slot];
    const auto [range, byte] = piece.slots[slot];
    const at::Tensor bytes = lease.bytes(range);
    const int64_t begin =
        (bytes.storage_offset() + byte) / static_cast<int64_t>(c10::elementSize(place.type));
    const at::Tensor empty = at::empty({0}, bytes.options().dtype(place.type));
    return item.is_cut ? empty.set_(bytes.storage(), begin, {piece.count}, {1})
                       : empty.set_(bytes.storage(), begin, place.sizes, place.strides);
  }

  /// Returns the gradient of the full parameter, in its strides if it is cut; keeps the last one.
  const at::Tensor& gradient_of(const PortionItem& item) {
    if (gradient_.second.defined() && gradient_.first == item.parameter) return gradient_.second;
    const at::Tensor& given = parameter(item.parameter).mutable_grad();
    LEVIN_CHECK(given.layout() == at::kStrided, "optim.sparse",
                "{} with --offload supports dense gradients only, but {} got a sparse one; use an "
                "embedding without sparse gradients",
                name(), parameters()[item.parameter].name);
    gradient_ = {item.parameter,
                 item.is_cut ? dense_gradient(name(), parameter(item.parameter), given) : given};
    return gradient_.second;
  }

  void update(const Portion& portion, const std::vector<PortionItem>& items,
              const StateMemory::Lease* lease) {
    for (size_t group = 0; group < groups().size(); ++group) {
      std::vector<UpdatePiece> pieces;
      std::vector<size_t> of_parameters;
      std::vector<at::Tensor> written;  // the parts of the parameters, where masters are updated
      for (const PortionPiece& piece : portion.pieces) {
        const PortionItem& item = items[piece.item];
        const bool is_here = std::ranges::find(groups()[group].members, item.parameter) !=
                             groups()[group].members.end();
        if (!is_here) continue;
        std::optional<UpdatePiece> update = piece_of(piece, item, lease, written);
        if (!update) continue;
        pieces.push_back(std::move(*update));
        of_parameters.push_back(item.parameter);
      }
      if (!pieces.empty()) call_rule(pieces, group);
      for (size_t i = 0; i < pieces.size(); ++i) {
        mu_products_[of_parameters[i]] = pieces[i].counts.mu_product;
        if (has_masters_) written[i].copy_(pieces[i].values);
      }
    }
  }

  void call_rule(std::vector<UpdatePiece>& pieces, size_t group) {
    if (!has_masters_) return rule_->update(pieces, groups()[group], group);
    ParameterGroup of_masters = groups()[group];  // as MasterWeights: a rate set there stays there
    rule_->update(pieces, of_masters, group);
  }

  /// Nothing where the copy was brought up to date, and there is no gradient.
  std::optional<UpdatePiece> piece_of(const PortionPiece& piece, const PortionItem& item,
                                      const StateMemory::Lease* lease,
                                      std::vector<at::Tensor>& written) {
    const at::Tensor& whole = parameter(item.parameter);
    std::vector<at::Tensor> slots;
    for (size_t slot = 0; slot < piece.slots.size(); ++slot) {
      slots.push_back(slot_in(*lease, piece, slot, item));
    }
    at::Tensor values = whole;
    if (kept_[item.parameter].has_values) {
      values = std::move(slots.back());
      slots.pop_back();
    } else if (item.is_cut) {
      values = elements(whole, piece.begin, piece.count);
    }
    at::Tensor master;
    if (has_masters_) {
      master = slots.back();
      slots.pop_back();
      if (is_stale(item.parameter)) master.copy_(values);
    }
    if (!whole.mutable_grad().defined()) return std::nullopt;
    const at::Tensor& all = gradient_of(item);
    at::Tensor gradient = item.is_cut ? elements(all, piece.begin, piece.count) : all;
    SlotCounts counts = kept_[item.parameter].counts;
    ++counts.steps;
    if (!has_masters_) return UpdatePiece{values, std::move(gradient), std::move(slots), counts};
    written.push_back(values);
    return UpdatePiece{std::move(master), gradient.to(at::kFloat), std::move(slots), counts};
  }

  void finish(size_t index) {
    if (parameter(index).mutable_grad().defined()) {
      SlotCounts& counts = kept_[index].counts;
      ++counts.steps;
      counts.has_state = true;
      counts.mu_product = mu_products_[index];
      // A backward of a graph from before the step would be wrong without a word.
      torch::autograd::impl::bump_version(parameter(index));
    }
    marks_[index] = WriteMark(parameter(index));
  }

  // Checkpoints.

  std::optional<SavedSlots> saved_in(const State& states, size_t index) const {
    const NamedTensor& one = parameters()[index];
    if (!states.contains(one.name)) return std::nullopt;
    const State& state = states.child(one.name);
    const at::Tensor like = shape_of(one.tensor, type_of(index));
    const std::vector<SlotShape> shapes = rule_->slots_of(like);
    std::optional<SavedSlots> saved = rule_->of_state(state, shapes);
    for (size_t slot = 0; saved && slot < shapes.size(); ++slot) {
      check_slot(one, shapes[slot], saved->slots[slot]);
    }
    if (!has_masters_ || !(saved || state.contains("master"))) return saved;
    check_shape("master", one, state.tensor_or_slice("master"));
    return saved ? saved : SavedSlots();  // it has a copy, and no state yet
  }

  static void check_slot(const NamedTensor& one, const SlotShape& shape,
                         const State::Value& value) {
    if (shape.like.sizes() == one.tensor.sizes()) return check_shape(shape.name, one, value);
    const auto* tensor = std::get_if<at::Tensor>(&value);
    LEVIN_CHECK(tensor != nullptr && tensor->sizes() == shape.like.sizes(), "optim.state.shape",
                "{} of {} has a wrong shape: {} instead of {}", shape.name, one.name,
                tensor == nullptr ? "a shard" : c10::str(tensor->sizes()),
                c10::str(shape.like.sizes()));
  }

  void load(size_t index, const std::optional<SavedSlots>& saved, const State& states) {
    Kept& kept = kept_[index];
    if (!kept.is_taken_up) return;
    const bool has_slots = saved && saved->counts.has_state;
    const auto own = own_slots(kept);
    for (size_t slot = 0; slot < own.size(); ++slot) {
      if (!has_slots) {
        memory_->fill(own[slot],
                      rule_->slots_of(shape_of(parameter(index), type_of(index)))[slot].fill);
        continue;
      }
      const State::Value& value = saved->slots[slot];
      memory_->copy_into(own[slot], is_elementwise(index, own[slot])
                                        ? shard::own_part(parameter(index), value)
                                        : std::get<at::Tensor>(value));
    }
    kept.counts = saved ? saved->counts : SlotCounts();
    kept.counts.has_state = has_slots || rule_->begins_with_state();
    if (!has_masters_) return;
    const State* state = saved ? &states.child(parameters()[index].name) : nullptr;
    memory_->copy_into(kept.places.back(),
                       state == nullptr
                           ? parameter(index).detach()
                           : shard::own_part(parameter(index), state->tensor_or_slice("master")));
    marks_[index] = WriteMark(parameter(index));
  }

  std::shared_ptr<StateMemory> memory_;
  std::unique_ptr<OffloadRule> rule_;
  bool has_masters_;
  std::vector<Kept> kept_;                ///< by parameter
  std::vector<WriteMark> marks_;          ///< parameters as they were last written here
  std::vector<int64_t> waves_;            ///< by parameter
  std::map<size_t, double> mu_products_;  ///< after the step under way
  std::pair<size_t, at::Tensor> gradient_;
};

}  // namespace

std::unique_ptr<Optimizer> make_offloaded(const OptimizerConfig& config,
                                          std::vector<NamedTensor> parameters,
                                          std::vector<ParameterGroup> groups, bool has_masters) {
  auto rule = make_offload_rule(config, parameters, groups, has_masters);
  return std::make_unique<OffloadedOptimizer>(config, std::move(rule), std::move(parameters),
                                              std::move(groups), has_masters);
}

}  // namespace levin::optim
