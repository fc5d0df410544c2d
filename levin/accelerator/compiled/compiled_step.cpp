#include "levin/accelerator/compiled/compiled_step.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "levin/accelerator/compiled/compiled_function.h"
#include "levin/accelerator/compiled/graph_file.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/accelerator/engine/host_memory.h"
#include "levin/base/autocast.h"
#include "levin/base/check.h"
#include "levin/graph/passes/passes.h"
#include "levin/xla/library.h"

namespace levin {
namespace {

std::vector<bool> gradient_flags(const std::vector<NamedTensor>& parameters) {
  std::vector<bool> flags;
  for (const NamedTensor& parameter : parameters) flags.push_back(parameter.tensor.requires_grad());
  return flags;
}

/// A replay sets gradients and drops none by itself.
void drop_gradients_after(graph::HostPart& recording, const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> without;
  for (const NamedTensor& parameter : parameters) {
    if (!parameter.tensor.grad().defined()) without.push_back(parameter.tensor);
  }
  if (without.empty()) return;
  recording.after([without] {
    for (const at::Tensor& parameter : without) parameter.mutable_grad().reset();
  });
}

/// Changes a recording so that what a step needs beside its state comes to a part of itself, and its
/// collectives overlap with operators. A replay's memory is one piece, to which the pieces that the
/// steps before have freed are of no use.
void change_recording(Engine& engine, graph::Graph& graph) {
  detail::return_freed_memory();
  const RecordedPasses passes = engine.strategy().recorded_passes();
  const double part = engine.options().engine.activation_memory_budget;
  if (part < 1.0) {
    const int64_t state = graph::state_bytes(graph);
    const auto values = static_cast<double>(graph::memory_of(graph).peak_bytes - state);
    graph::rematerialize(graph, state + static_cast<int64_t>(part * values));
  }
  if (passes.bytes_under_way > 0) {
    graph::overlap_collectives(graph,
                               {.bytes_under_way = passes.bytes_under_way, .keeps_order = true});
  }
}

graph::CheckOptions check_options(const AcceleratorOptions& options) {
  graph::CheckOptions check;
  const std::string& when = options.engine.compile_check;
  if (when == "every") {
    check.every = 1;
  } else if (when == "no") {
    check.every = graph::CheckOptions::kNever;
  } else if (when != "auto") {
    const auto [end, error] = std::from_chars(when.data(), when.data() + when.size(), check.every);
    LEVIN_CHECK(error == std::errc() && end == when.data() + when.size() && check.every > 0,
                "accelerator.compile_check",
                "got compile_check = '{}', wanted auto, every, no, or a number above 0; set "
                "--compile-check",
                when);
  }
  const std::string& policy = options.engine.compile_check_policy;
  LEVIN_CHECK(policy == "warn" || policy == "stop", "accelerator.compile_check",
              "got compile_check_policy = '{}', wanted warn or stop; set --compile-check-policy",
              policy);
  check.stops = policy == "stop";
  LEVIN_CHECK(
      options.engine.compile_check_memory >= 0, "accelerator.compile_check",
      "got compile_check_memory = {} MB, wanted 0 (no limit) or more; set --compile-check-memory",
      options.engine.compile_check_memory);
  check.most_bytes = static_cast<int64_t>(options.engine.compile_check_memory * 1e6);
  return check;
}

std::shared_ptr<graph::CompileBackend> backend_of(const Engine& engine) {
  return engine.xla() == nullptr ? nullptr : xla::library().make_engine(engine.xla());
}

}  // namespace

void check_compile_check(const AcceleratorOptions& options) {
  static_cast<void>(check_options(options));
}

CompiledStep::CompiledStep(Engine& engine, std::string name)
    : engine_(engine),
      compiled_(
          std::move(name),
          {.state = [this] { return engine_.named_state(); },
           .watched = [this] { return weights(); },
           .on_recorded = [](const graph::Graph& graph) { detail::keep_graph(graph); },
           .pass = [this](graph::Graph& graph) { change_recording(engine_, graph); },
           .replay = [this] { return graph::ReplayOptions{engine_.strategy().exchange_memory()}; },
           .engine = backend_of(engine),
           .check = check_options(engine.options())}) {}

CompiledStep::~CompiledStep() = default;

std::vector<at::Tensor> CompiledStep::operator()(const StepCall& call, const Function& function) {
  // A call within a function that is being recorded is a part of that recording.
  if (!engine_.compiles() || graph::HostPart::current() != nullptr) return function();
  if (generation_ != engine_.generation() || has_other_modules()) prepare();
  if (std::has_single_bit(++calls_)) engine_.check_prepared();
  conditions_.inputs.clear();
  conditions_.names.clear();
  for (const NamedTensor& input : call.inputs) {
    conditions_.inputs.push_back(input.tensor);
    conditions_.names.push_back(input.name);
  }
  conditions_.guards = call.guards;
  conditions_.arguments = call.arguments;
  conditions_.step = call.step;
  engine_.strategy().before_replay();
  engine_.stepping().before_replay();
  add_conditions();
  look_for_writes();
  bool ran = false;
  std::vector<at::Tensor> results = compiled_(conditions_, [&] {
    ran = true;
    return run(function);
  });
  conditions_.inputs.clear();  // until the next call nobody needs them
  // A replay has replaced the gradients of the step that ran before it, whose memory lay elsewhere.
  if (std::exchange(ran_, ran) && !ran) detail::return_freed_memory();
  versions_ = versions();
  // All code is recorded, or may stay eager; from here on freed memory is kept, for example in a
  // validation.
  const graph::CompiledReport& report = compiled_.report();
  const size_t num_outcomes = report.replays.size() + report.refusals.size();
  if (num_outcomes > num_outcomes_) detail::keep_freed_memory();
  num_outcomes_ = num_outcomes;
  detail::check_refusals(report.refusals);
  return results;
}

void CompiledStep::prepare() {
  generation_ = engine_.generation();
  modules_.clear();
  module_names_.clear();
  gradient_names_.clear();
  for (const auto& module : engine_.modules()) {
    for (const auto& item : module->named_modules()) {
      modules_.push_back(item.value());
      module_names_.push_back(item.key().empty() ? "the module" : item.key());
    }
  }
  module_counts_.clear();
  for (const auto& module : modules_) module_counts_.push_back(module.use_count());
  ++num_preparations_;
  module_options_ = detail::options_of(modules_, module_names_);
  for (const NamedTensor& parameter : engine_.named_parameters()) {
    gradient_names_.push_back("gradient of " + parameter.name);
  }
}

void CompiledStep::add_conditions() {
  std::vector<graph::Guard>& guards = conditions_.guards;
  const auto add = [&](std::string_view what, auto value, std::string_view of = {}) {
    guards.push_back({what, value, of});
  };
  add("what was prepared", generation_);
  add("which modules there are", num_preparations_);
  add("default dtype", static_cast<int>(c10::get_default_dtype_as_scalartype()));
  add("gradient mode", at::GradMode::is_enabled());
  const Autocast autocast = current_autocast(engine_.device().type());
  add("autocast", autocast.enabled ? static_cast<int>(autocast.dtype) : -1);
  for (size_t i = 0; i < modules_.size(); ++i) {
    add("training mode", modules_[i]->is_training(), module_names_[i]);
  }
  for (const detail::ModuleOptions& options : module_options_) {
    add("the options' hash", options.fingerprint(), options.of);
  }
  const std::vector<NamedTensor>& parameters = engine_.named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    add("requires_grad", parameters[i].tensor.requires_grad(), parameters[i].name);
    conditions_.inputs.push_back(parameters[i].tensor.grad());
    conditions_.names.push_back(gradient_names_[i]);
  }
  for (const PreparedOptimizer& prepared : engine_.optimizers()) {
    const optim::Optimizer& optimizer = prepared.optimizer();
    add("layout", optimizer.layout(), optimizer.name());
    for (const optim::ParameterGroup& group : optimizer.groups()) {
      add("weight_decay", group.weight_decay, optimizer.name());
    }
  }
  engine_.stepping().state().place.visit(add);
}

std::vector<at::Tensor> CompiledStep::weights() const {
  std::vector<at::Tensor> weights;
  for (const auto& module : engine_.modules()) {
    for (const at::Tensor& parameter : module->parameters()) weights.push_back(parameter);
    for (const at::Tensor& buffer : module->buffers()) weights.push_back(buffer);
  }
  return weights;
}

/// The sum of the versions of all parameters; replays and eager steps change it too.
uint64_t CompiledStep::versions() const {
  uint64_t sum = 0;
  for (const NamedTensor& parameter : engine_.named_parameters()) {
    if (!parameter.tensor.is_inference()) sum += parameter.tensor._version();
  }
  return sum;
}

/// A callback that writes weights may have changed more. One that does so in each step is looked at
/// now and then.
void CompiledStep::look_for_writes() {
  if (calls_ > 1 && versions() != versions_ && std::has_single_bit(++outside_writes_)) {
    compiled_.check_next();
  }
}

/// A child that was replaced is held by nobody else, or by fewer; a container may have more.
bool CompiledStep::has_other_modules() const {
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (modules_[i].use_count() < module_counts_[i]) return true;
  }
  return std::ranges::any_of(module_options_, [](const detail::ModuleOptions& options) {
    return options.num_children >= 0 && options.fingerprint() != options.num_children;
  });
}

/// The function, and what a replay must do in its place.
std::vector<at::Tensor> CompiledStep::run(const Function& function) {
  graph::HostPart* recording = compiled_.recording();
  if (recording == nullptr) return function();
  const Stepping::RecordingScope scope(engine_.stepping(), *recording);
  const std::vector<NamedTensor>& parameters = engine_.named_parameters();
  const std::vector<bool> flags = gradient_flags(parameters);
  std::vector<at::Tensor> results = function();
  engine_.strategy().after_recording();
  if (gradient_flags(parameters) != flags) {
    recording->refuse(
        "it changes which parameters require gradients, and does not change them back");
  }
  drop_gradients_after(*recording, parameters);
  return results;
}

namespace detail {

CompiledCalls::CompiledCalls(Engine& engine)
    : step_(std::make_shared<CompiledStep>(engine, "the compiled function")) {}

std::vector<at::Tensor> CompiledCalls::operator()(
    const CompiledArguments& arguments, const std::function<std::vector<at::Tensor>()>& function) {
  StepCall call;
  call.inputs = arguments.tensors;
  for (const auto& number : arguments.numbers) {
    const auto exact = [](auto value) { return graph::ExactNumber(value); };
    call.guards.push_back({"an argument", std::visit(exact, number)});
  }
  return (*step_)(call, function);
}

const graph::CompiledReport& CompiledCalls::report() const { return step_->compiled().report(); }

}  // namespace detail
}  // namespace levin
