#include "levin/interchange/loaded_program.h"

#include <ATen/core/Dict.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/archive/program_weights.h"

namespace levin::interchange {
namespace {

/// "layers.0.weight" is weight of the part layers.0.
std::pair<std::string, std::string> split(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

/// "torch.nn.modules.conv.Conv2d" is Conv2d, as torch::nn::Module::name() has it.
std::string short_name(const std::string& python_class) {
  return python_class.substr(python_class.rfind('.') + 1);
}

/// The row of the first embedding that looks into a matrix. A nested body has the matrix as an input of its own.
std::optional<int64_t> padding_row_in(const Body& body, Slot matrix) {
  const auto is_matrix = [&](const Operand* operand) {
    return operand != nullptr && operand->kind == Operand::Kind::kSlot && operand->slot == matrix;
  };
  for (const Node& node : body.nodes) {
    const auto nested = std::ranges::find_if(node.inputs, [](const NamedOperand& input) {
      return input.operand.kind == Operand::Kind::kBody;
    });
    if (nested != node.inputs.end()) {
      const Body& inner = *nested->operand.body;
      const auto given = nested + 1;
      const auto count = std::min<size_t>(inner.inputs.size(), node.inputs.end() - given);
      for (size_t i = 0; i < count; ++i) {
        if (!is_matrix(&given[i].operand)) continue;
        if (const auto row = padding_row_in(inner, inner.inputs[i])) return row;
      }
    }
    const Operand* padding = find_input(node, "padding_idx");
    if (node.target.starts_with("torch.ops.aten.embedding") && padding != nullptr &&
        is_matrix(find_input(node, "weight")) && padding->constant.isInt() &&
        padding->constant.toInt() >= 0) {
      return padding->constant.toInt();
    }
  }
  return std::nullopt;
}

/// A tensor that is not in the state dict.
bool is_constant(const Input& input) {
  return input.kind == Input::Kind::kConstant ||
         (input.kind == Input::Kind::kBuffer && !input.is_persistent);
}

}  // namespace

LoadedProgram::LoadedProgram(ExportedModule& root, const ProgramArchive& archive,
                             const ExportedOptions& options, const LoadedProgram* training)
    : root_(root), program_(read_program(archive.program())) {
  if (training == nullptr) {
    make_parts();
    make_tensors(weights_of(program_, archive, options.weights), archive.constants());
  } else {
    parts_ = training->parts_;
    take_tensors(*training, archive);
  }
  make_steps(options, /*is_first=*/training == nullptr);
  inputs_.emplace(program_);
  check_outputs();
}

void LoadedProgram::check_outputs() const {
  const auto num_outputs =
      static_cast<size_t>(std::ranges::count(program_.outputs, Output::Kind::kUser, &Output::kind));
  for (const Output& output : program_.outputs) {
    LEVIN_CHECK(
        output.kind == Output::Kind::kUser ||
            std::ranges::find(program_.inputs, output.name, &Input::name) != program_.inputs.end(),
        "interchange.archive", "the program writes '{}', but has no such tensor",
        printable(output.name));
  }
  LEVIN_CHECK(num_outputs == program_.output_tree.num_leaves(), "interchange.archive",
              "the program has {} outputs, but its output tree has {}", num_outputs,
              program_.output_tree.num_leaves());
}

ExportedPart& LoadedProgram::part_of(const std::string& path) {
  if (path.empty()) return root_;
  if (const auto found = parts_.find(path); found != parts_.end()) return *found->second;
  const auto [parent, name] = split(path);
  const auto known = program_.module_classes.find(path);
  const std::string python_class =
      known == program_.module_classes.end() ? "" : printable(known->second);
  auto part = python_class.empty() ? std::make_shared<ExportedPart>()
                                   : std::make_shared<ExportedPart>(short_name(python_class));
  part->python_class_ = python_class;
  part_of(parent).register_module(name, part);
  parts_[path] = part.get();
  return *part;
}

void LoadedProgram::make_parts() {
  if (const auto known = program_.module_classes.find(""); known != program_.module_classes.end()) {
    root_.python_class_ = printable(known->second);
  }
  for (const std::string& path : program_.modules) part_of(path);
}

void LoadedProgram::make_tensors(const Tensors& weights, const Tensors& constants) {
  // A record is one storage: the same part of it is the same tensor, as tied weights are in Python.
  std::map<std::tuple<const void*, std::vector<int64_t>, std::vector<int64_t>>, at::Tensor> tied;
  for (const Input& input : program_.inputs) {
    if (input.kind == Input::Kind::kUser) continue;
    if (is_constant(input)) {
      take_constant(input, constants, {});
      continue;
    }
    at::Tensor tensor = weights.find(input.name)->second;
    if (tensor.numel() > 0) {
      const std::tuple key(tensor.const_data_ptr(), tensor.sizes().vec(), tensor.strides().vec());
      tensor = tied.try_emplace(key, tensor).first->second;
    }
    const auto [path, name] = split(input.name);
    ExportedPart& part = part_of(path);
    const bool is_parameter = input.kind == Input::Kind::kParameter;
    bound_.push_back({.slot = input.slot,
                      .tensor = is_parameter
                                    ? part.register_parameter(name, tensor, input.requires_grad)
                                    : part.register_buffer(name, tensor),
                      .is_parameter = is_parameter});
  }
}

// A constant of the program has no name that another program would know; a buffer has.
void LoadedProgram::take_constant(
    const Input& input, const Tensors& constants,
    const std::map<std::string, std::shared_ptr<at::Tensor>>& theirs) {
  const bool is_buffer = input.kind == Input::Kind::kBuffer;
  const auto shared = theirs.find(input.name);
  Constant made{.slot = input.slot, .tensor = nullptr, .is_buffer = is_buffer};
  if (is_buffer && shared != theirs.end()) {
    made.tensor = shared->second;
  } else {
    const auto found = constants.find(input.name);
    LEVIN_CHECK(found != constants.end(), "interchange.archive",
                "the archive has no values for '{}'", printable(input.name));
    made.tensor = std::make_shared<at::Tensor>(found->second);
  }
  constants_.push_back(std::move(made));
}

void LoadedProgram::take_tensors(const LoadedProgram& training, const ProgramArchive& archive) {
  std::map<std::string, at::Tensor> tensors;
  std::map<std::string, std::shared_ptr<at::Tensor>> buffers;
  auto bound = training.bound_.begin();
  auto constant = training.constants_.begin();
  for (const Input& input : training.program_.inputs) {
    if (input.kind == Input::Kind::kUser) continue;
    if (is_constant(input)) {
      buffers[input.name] = (constant++)->tensor;
    } else {
      tensors[input.name] = (bound++)->tensor;
    }
  }
  const Tensors constants = archive.constants();
  for (const Input& input : program_.inputs) {
    if (input.kind == Input::Kind::kUser) continue;
    if (is_constant(input)) {
      take_constant(input, constants, buffers);
      continue;
    }
    const auto found = tensors.find(input.name);
    LEVIN_CHECK(found != tensors.end(), "interchange.archive",
                "the evaluation program has '{}', but the training program does not; export both "
                "from the same network",
                printable(input.name));
    bound_.push_back({.slot = input.slot,
                      .tensor = found->second,
                      .is_parameter = input.kind == Input::Kind::kParameter});
  }
}

void LoadedProgram::make_steps(const ExportedOptions& options, bool is_first) {
  StepContext context;
  context.attention_dropout = options.attention_dropout;
  context.module_of = [this](const std::string& path) -> const torch::nn::Module* {
    const auto found = parts_.find(path);
    return found == parts_.end() ? &root_ : found->second;
  };
  for (const Input& input : program_.inputs) {
    if (input.kind == Input::Kind::kBuffer) context.buffers[input.slot] = input.name;
    if (input.type) context.exported_device = input.type->device;
  }
  steps_.emplace(program_.body, context);
  if (!context.unsupported.empty()) {
    LEVIN_FAIL(
        "interchange.unsupported",
        "levin cannot run this program: these operators are not registered. Load the library that "
        "has them (TORCH_LIBRARY) first, or export the network without them:\n  {}",
        fmt::join(context.unsupported, "\n  "));
  }
  set_modes(context, options, is_first);
}

void LoadedProgram::set_modes(const StepContext& context, const ExportedOptions& options,
                              bool is_first) {
  bool trains = context.exported_training.empty();
  for (const auto& [module, is_training] : context.exported_training) trains |= is_training;
  std::vector<std::string> reasons;
  for (const auto& [module, reason] : context.only_evaluate) reasons.push_back(reason);
  if (!trains) {
    for (const auto& [module, place] : context.attention_without_rate) {
      reasons.push_back(place + " has no dropout rate; set ExportedOptions::attention_dropout");
    }
  }
  reason_not_trained_ = fmt::format("{}", fmt::join(reasons, "\n  "));
  if (trains && !options.same_in_evaluation) {
    reason_not_evaluated_ = fmt::format("{}", fmt::join(context.maybe_training, "\n  "));
  }
  if (!is_first) return;
  root_.torch::nn::Module::train(trains);
  for (const auto& [module, is_training] : context.exported_training) {
    if (is_training == trains) continue;
    // Modules are this object's own; the context only looks at them.
    const_cast<torch::nn::Module*>(module)->train(is_training);
  }
}

std::optional<int64_t> LoadedProgram::padding_row(const std::string& parameter) const {
  const auto input = std::ranges::find(program_.inputs, parameter, &Input::name);
  if (input == program_.inputs.end()) return std::nullopt;
  return padding_row_in(program_.body, input->slot);
}

void LoadedProgram::convert_constants(at::ScalarType dtype) {
  for (const Constant& constant : constants_) {
    if (constant.is_buffer && constant.tensor->is_floating_point()) {
      *constant.tensor = constant.tensor->to(dtype);
    }
  }
}

void LoadedProgram::bind_inputs(const std::vector<c10::IValue>& leaves, Frame& frame) const {
  for (size_t i = 0; i < leaves.size(); ++i) {
    frame.values[inputs_->slot(i)] = leaves[i];
    if (leaves[i].isTensor()) frame.device = leaves[i].toTensor().device();
  }
  for (const Bound& bound : bound_) {
    if (bound.is_parameter) frame.device = bound.tensor.device();
    frame.values[bound.slot] = bound.tensor;
  }
  for (const Constant& constant : constants_) {
    if (constant.tensor->device() != frame.device) {
      *constant.tensor = constant.tensor->to(frame.device);
    }
    frame.values[constant.slot] = *constant.tensor;
  }
}

ExportedOutput LoadedProgram::run(const std::vector<c10::IValue>& arguments,
                                  const ExportedInputs& named) const {
  Frame frame;
  frame.values.resize(program_.num_slots);
  bind_inputs(inputs_->leaves_of(arguments, named), frame);
  const std::vector<at::Tensor> targets = written(frame);
  steps_->run(frame);
  return ExportedOutput(results(frame, targets));
}

// A program after run_decompositions() writes nothing in place: it returns the new values.
std::vector<at::Tensor> LoadedProgram::written(const Frame& frame) const {
  std::vector<at::Tensor> targets;
  for (const Output& output : program_.outputs) {
    if (output.kind == Output::Kind::kUser) continue;
    const auto input = std::ranges::find(program_.inputs, output.name, &Input::name);
    targets.push_back(frame.values[input->slot].toTensor());
  }
  return targets;
}

c10::IValue LoadedProgram::results(const Frame& frame,
                                   const std::vector<at::Tensor>& written) const {
  std::vector<c10::IValue> leaves;
  auto target = written.begin();
  for (const Output& output : program_.outputs) {
    if (output.kind == Output::Kind::kUser) {
      leaves.push_back(value_of(output.operand, frame));
    } else {
      const at::NoGradGuard no_grad;
      (target++)->copy_(value_of(output.operand, frame).toTensor());
    }
  }
  return program_.output_tree.unflatten(leaves);
}

}  // namespace levin::interchange
