#pragma once
// LoadedProgram: a program bound to the tensors of a module, which a call runs.
// Not for users.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "levin/interchange/archive/program_archive.h"
#include "levin/interchange/load_exported.h"
#include "levin/interchange/program/program.h"
#include "levin/interchange/program_inputs.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {

class LoadedProgram {
 public:
  /// Makes the module's parts and tensors, and the steps. With `training`, which the module has already,
  /// it takes that one's tensors, and from the archive the program alone.
  LoadedProgram(ExportedModule& root, const ProgramArchive& archive, const ExportedOptions& options,
                const LoadedProgram* training = nullptr);

  ExportedOutput run(const std::vector<c10::IValue>& arguments, const ExportedInputs& named) const;
  const std::vector<std::string>& argument_names() const { return inputs_->names(); }
  /// Empty where it can be trained.
  const std::string& reason_not_trained() const { return reason_not_trained_; }
  /// Empty where it can be evaluated.
  const std::string& reason_not_evaluated() const { return reason_not_evaluated_; }
  /// The row of an embedding's matrix that stands for padding; none where it has none.
  std::optional<int64_t> padding_row(const std::string& parameter) const;
  /// Casts the floating-point buffers that are not in the state dict.
  void convert_constants(at::ScalarType dtype);

 private:
  /// An input that is a parameter or buffer of the module: what moves, loads or divides it puts other
  /// values into this tensor, as LibTorch's Module::to does.
  struct Bound {
    Slot slot = 0;
    at::Tensor tensor;
    bool is_parameter = false;
  };

  /// A tensor of the program that is not in the state dict.
  struct Constant {
    Slot slot = 0;
    std::shared_ptr<at::Tensor> tensor;  ///< both programs of a module have the same
    bool is_buffer = false;              ///< Module::to(dtype) converts it, as in Python
  };
  ExportedPart& part_of(const std::string& path);
  void make_parts();
  void make_tensors(const Tensors& weights, const Tensors& constants);
  void make_steps(const ExportedOptions& options, bool is_first);
  void take_tensors(const LoadedProgram& training, const ProgramArchive& archive);
  void set_modes(const StepContext& context, const ExportedOptions& options, bool is_first);
  void take_constant(const Input& input, const Tensors& constants,
                     const std::map<std::string, std::shared_ptr<at::Tensor>>& theirs);
  void check_outputs() const;
  void bind_inputs(const std::vector<c10::IValue>& leaves, Frame& frame) const;
  std::vector<at::Tensor> written(const Frame& frame) const;
  c10::IValue results(const Frame& frame, const std::vector<at::Tensor>& written) const;

  ExportedModule& root_;
  Program program_;
  std::map<std::string, ExportedPart*, std::less<>> parts_;
  std::optional<ProgramInputs> inputs_;
  std::vector<Bound> bound_;
  std::vector<Constant> constants_;  ///< they follow the module's device
  std::optional<Steps> steps_;
  std::string reason_not_trained_;
  std::string reason_not_evaluated_;
};

}  // namespace levin::interchange
