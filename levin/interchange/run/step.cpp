#include "levin/interchange/run/step.h"

#include <c10/util/Exception.h>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::interchange {
namespace {

template <class Visit>
void for_each_slot(const Operand& operand, const Visit& visit) {
  if (operand.kind == Operand::Kind::kSlot) visit(operand.slot);
  for (const Operand& item : operand.items) for_each_slot(item, visit);
  if (operand.kind != Operand::Kind::kBody) return;
  for (const Node& node : operand.body->nodes) {
    for (const NamedOperand& input : node.inputs) for_each_slot(input.operand, visit);
  }
  for (const Operand& output : operand.body->outputs) for_each_slot(output, visit);
}

/// The last node that reads each value; its own maker where nobody does.
std::map<Slot, size_t> last_uses(const Body& body) {
  std::map<Slot, size_t> last;
  for (const Slot slot : body.inputs) last[slot] = 0;
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    for (const NamedOperand& input : body.nodes[i].inputs) {
      for_each_slot(input.operand, [&](Slot slot) {
        if (const auto own = last.find(slot); own != last.end()) own->second = i;
      });
    }
    for (const Result& result : body.nodes[i].results) {
      for (const Slot slot : result.slots) last[slot] = i;
    }
  }
  for (const Operand& output : body.outputs) {
    for_each_slot(output, [&](Slot slot) { last.erase(slot); });
  }
  return last;
}

std::unique_ptr<Step> make_step(const Node& node, StepContext& context) {
  if (auto step = make_number_step(node)) return step;
  if (auto step = make_check_step(node)) return step;
  if (auto step = make_region_step(node, context)) return step;
  if (auto step = make_linear_step(node, context)) return step;
  return make_operator_step(node, context);
}

}  // namespace

std::set<Slot> slots_of(const Operand& operand) {
  std::set<Slot> slots;
  for_each_slot(operand, [&](Slot slot) { slots.insert(slot); });
  return slots;
}

std::string place_of(const Node& node) {
  std::string text = node.target;
  if (!node.name.empty()) text += " (" + node.name + ")";
  if (!node.source.empty()) text += " at " + node.source;
  return printable(text);
}

Steps::Steps(const Body& body, StepContext& context) {
  for (const Node& node : body.nodes) {
    auto step = make_step(node, context);
    if (step == nullptr) context.unsupported.insert(place_of(node));
    steps_.push_back({.step = std::move(step), .dead = {}});
  }
  if (steps_.empty()) return;
  for (const auto& [slot, last] : last_uses(body)) steps_[last].dead.push_back(slot);
  for (Planned& planned : steps_) {
    if (planned.step != nullptr) planned.step->may_free(planned.dead);
  }
}

void Steps::run(Frame& frame) const {
  for (const Planned& planned : steps_) {
    try {
      planned.step->run(frame);
    } catch (c10::Error& error) {
      error.add_context("in " + place_of(planned.step->node()));
      throw;
    }
    for (const Slot slot : planned.dead) frame.values[slot] = {};
  }
}

}  // namespace levin::interchange
