#include <ATen/core/Dict.h>
#include <fmt/ranges.h>

#include "levin/base/check.h"
#include "levin/interchange/load_exported.h"
#include "levin/interchange/loaded_program.h"

namespace levin {
namespace {

/// The tensor that it is, or that is alone in a tuple.
std::optional<at::Tensor> only_tensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (!value.isTuple()) return std::nullopt;
  const auto& items = value.toTupleRef().elements();
  return items.size() == 1 ? only_tensor(items[0]) : std::nullopt;
}

}  // namespace

at::Tensor ExportedOutput::operator[](std::string_view key) const {
  std::vector<std::string> keys;
  if (value_.isGenericDict()) {
    for (const auto& entry : value_.toGenericDict()) {
      keys.push_back(entry.key().toStringRef());
      if (keys.back() == key && entry.value().isTensor()) return entry.value().toTensor();
    }
  }
  LEVIN_FAIL("interchange.output", "the program returned no tensor '{}'; it returned {}", key,
             value_.isGenericDict() ? fmt::format("{}", fmt::join(keys, ", "))
                                    : value_.tagKind() + " without names");
}

at::Tensor ExportedOutput::tensor() const {
  const auto tensor = only_tensor(value_);
  LEVIN_CHECK(tensor.has_value(), "interchange.output",
              "the program returned {}, wanted one tensor; call run() and take an output by name, "
              "or from value()",
              value_.tagKind());
  return *tensor;
}

ExportedModule::ExportedModule() : ExportedPart("ExportedModule") {}
ExportedModule::~ExportedModule() = default;

std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                              const ExportedOptions& options) {
  const interchange::ProgramArchive archive(path);
  const std::shared_ptr<ExportedModule> module(new ExportedModule());
  module->program_ = std::make_unique<interchange::LoadedProgram>(*module, archive, options);
  if (options.evaluation.empty()) return module;
  const interchange::ProgramArchive evaluation(options.evaluation);
  module->evaluation_ = std::make_unique<interchange::LoadedProgram>(*module, evaluation, options,
                                                                     module->program_.get());
  return module;
}

const interchange::LoadedProgram& ExportedModule::program() const {
  return evaluation_ != nullptr && !is_training() ? *evaluation_ : *program_;
}

ExportedOutput ExportedModule::run(const std::vector<c10::IValue>& arguments,
                                   const ExportedInputs& named) {
  return program().run(arguments, named);
}

ExportedOutput ExportedModule::run(const Batch& batch) {
  ExportedInputs named;
  for (const std::string& name : argument_names()) {
    if (batch.contains(name)) named.emplace(name, batch[name]);
  }
  return program().run({}, named);
}

const std::vector<std::string>& ExportedModule::argument_names() const {
  return program_->argument_names();
}

void ExportedModule::train(bool on) {
  LEVIN_CHECK(!on || program_->reason_not_trained().empty(), "interchange.mode",
              "this program was exported in evaluation mode and does not say how to train: {}. "
              "Export net.train() instead of net.eval()",
              program_->reason_not_trained());
  LEVIN_CHECK(on || evaluation_ != nullptr || program_->reason_not_evaluated().empty(),
              "interchange.mode",
              "this program was exported in training mode and does not say what evaluation mode "
              "turns off: {}. Export net.eval() too and set ExportedOptions::evaluation to it, or "
              "set same_in_evaluation if both modes compute the same",
              program_->reason_not_evaluated());
  torch::nn::Module::train(on);
}

void ExportedModule::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, dtype, non_blocking);
  convert_constants(dtype);
}

void ExportedModule::to(torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(dtype, non_blocking);
  convert_constants(dtype);
}

void ExportedModule::convert_constants(at::ScalarType dtype) {
  if (!c10::isFloatingType(dtype)) return;
  program_->convert_constants(dtype);
  if (evaluation_ != nullptr) evaluation_->convert_constants(dtype);
}

// The constants follow at the next call.
void ExportedModule::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
}

}  // namespace levin
