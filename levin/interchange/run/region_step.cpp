// Regions of a program: `with torch.no_grad()` and `with torch.autocast(...)`, which torch.export keeps
// as higher-order operators with a body of their own.
#include <c10/core/GradMode.h>

#include <set>

#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {
namespace {

class Region : public Step {
 public:
  /// The first num_settings inputs say what the region is; then come the body and its inputs.
  Region(const Node& node, size_t num_settings, StepContext& context)
      : Step(node), num_settings_(num_settings) {
    LEVIN_CHECK(node.inputs.size() > num_settings &&
                    node.inputs[num_settings].operand.kind == Operand::Kind::kBody,
                "interchange.archive", "{} has no subgraph", place_of(node));
    body_ = node.inputs[num_settings].operand.body;
    LEVIN_CHECK(node.inputs.size() - num_settings - 1 == body_->inputs.size(),
                "interchange.archive", "{} and its subgraph have different numbers of inputs",
                place_of(node));
    for (const Result& result : node.results) {
      results_.insert(results_.end(), result.slots.begin(), result.slots.end());
    }
    LEVIN_CHECK(results_.size() == body_->outputs.size(), "interchange.archive",
                "{} and its subgraph have different numbers of results", place_of(node));
    for (const Operand& output : body_->outputs) {
      LEVIN_CHECK(output.kind == Operand::Kind::kSlot || output.kind == Operand::Kind::kConstant,
                  "interchange.archive", "{} returns a list", place_of(node));
    }
    std::set<Slot> own(body_->inputs.begin(), body_->inputs.end());
    for (const Node& inner : body_->nodes) {
      for (const Result& result : inner.results)
        own.insert(result.slots.begin(), result.slots.end());
    }
    for (const Operand& output : body_->outputs) {
      const bool is_slot = output.kind == Operand::Kind::kSlot;
      if (is_slot && own.contains(output.slot)) own_outputs_.push_back(output.slot);
    }
    for (size_t i = 0; i < body_->inputs.size(); ++i) {
      const Operand& operand = node.inputs[num_settings + 1 + i].operand;
      const auto buffer = context.buffers.find(operand.slot);
      if (operand.kind == Operand::Kind::kSlot && buffer != context.buffers.end()) {
        context.buffers.emplace(body_->inputs[i], buffer->second);
      }
    }
    steps_.emplace(*body_, context);
  }

  // Its inputs; the body may read others of the program by their names.
  void may_free(const std::vector<Slot>& dead) override {
    const std::set<Slot> read = slots_of(node().inputs[num_settings_].operand);
    for (const Slot slot : dead) {
      if (!read.contains(slot)) dead_.push_back(slot);
    }
  }

 protected:
  const c10::IValue& setting(size_t index) const { return node().inputs[index].operand.constant; }
  // The body frees its inputs after their last use, and its outputs live on as results alone: a frame that
  // held them longer would hold the outputs of all regions until the end of the call.
  void run_body(Frame& frame) const {
    for (size_t i = 0; i < body_->inputs.size(); ++i) {
      frame.values[body_->inputs[i]] =
          value_of(node().inputs[num_settings_ + 1 + i].operand, frame);
    }
    for (const Slot slot : dead_) frame.values[slot] = {};
    steps_->run(frame);
    for (size_t i = 0; i < results_.size(); ++i) {
      frame.values[results_[i]] = value_of(body_->outputs[i], frame);
    }
    for (const Slot slot : own_outputs_) frame.values[slot] = {};
  }

 private:
  size_t num_settings_;
  std::shared_ptr<const Body> body_;
  std::vector<Slot> results_;
  std::vector<Slot> dead_;         ///< inputs that nobody reads after this step
  std::vector<Slot> own_outputs_;  ///< outputs that the body made or took as inputs
  std::optional<Steps> steps_;
};

/// wrap_with_set_grad_enabled(enabled, body, inputs...)
class GradRegion final : public Region {
 public:
  GradRegion(const Node& node, StepContext& context) : Region(node, 1, context) {
    LEVIN_CHECK(setting(0).isBool(), "interchange.archive",
                "{} has a setting that is not true or false", place_of(node));
  }
  // torch.no_grad() in a module holds where the caller has turned gradients off, and
  // torch.enable_grad() turns them on there too, as in Python.
  void run(Frame& frame) const override {
    const c10::AutoGradMode mode(setting(0).toBool());
    run_body(frame);
  }
};

/// wrap_with_autocast(device_type, dtype, enabled, cache_enabled, body, inputs...)
class AutocastRegion final : public Region {
 public:
  AutocastRegion(const Node& node, StepContext& context) : Region(node, 4, context) {
    LEVIN_CHECK(setting(0).isString() && (setting(1).isInt() || setting(1).isNone()) &&
                    setting(2).isBool() && (setting(3).isBool() || setting(3).isNone()),
                "interchange.archive", "{} does not have the settings of torch.autocast",
                place_of(node));
    device_ = c10::Device(setting(0).toStringRef()).type();
    follows_device_ = device_ == context.exported_device.type();
  }

  void run(Frame& frame) const override {
    const at::DeviceType device = follows_device_ ? frame.device.type() : device_;
    Autocast settings = current_autocast(device);
    settings.enabled = setting(2).toBool();
    if (setting(1).isInt()) settings.dtype = static_cast<at::ScalarType>(setting(1).toInt());
    if (setting(3).isBool()) settings.cache = setting(3).toBool();
    const AutocastScope scope(device, settings);
    run_body(frame);
  }

 private:
  at::DeviceType device_ = at::kCPU;
  bool follows_device_ = false;
};

}  // namespace

std::unique_ptr<Step> make_region_step(const Node& node, StepContext& context) {
  if (node.target == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
    return std::make_unique<GradRegion>(node, context);
  }
  if (node.target == "torch.ops.higher_order.wrap_with_autocast") {
    return std::make_unique<AutocastRegion>(node, context);
  }
  return nullptr;
}

}  // namespace levin::interchange
