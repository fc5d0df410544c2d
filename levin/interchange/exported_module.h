#pragma once
// ExportedModule: a program of torch.export as a torch::nn::Module that trains.
// load_exported makes it; to Trainer, Accelerator and strategies it is a module as any other.
//
//   auto net = levin::load_exported("net.pt2");
//   at::Tensor logits = net->forward(images);                      // one tensor in, one out
//   auto out = net->run({{"input_ids", ids}, {"labels", labels}});  // by Python's names
//   out["loss"].backward();

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace levin {

struct ExportedOptions {
  /// Values of parameters and buffers by Python's names, in place of the archive's: a file or folder that
  /// load_weights reads. They stay in its memory map until somebody writes to them; the file itself is never
  /// changed. The archive need not hold values then. Of tied names one suffices.
  std::filesystem::path weights = {};
  /// The rate of attention's dropout in training, for a program that was exported in evaluation mode,
  /// where scaled_dot_product_attention has none; unset: training such a program is an error.
  std::optional<double> attention_dropout = {};
  /// The same network exported by net.eval(), which evaluation mode runs, on the same tensors. A program
  /// that draws random numbers beside nn.Dropout (stochastic depth) or writes buffers beside those of
  /// batch norm (spectral norm) wants it; so does one whose forward asks for self.training.
  std::filesystem::path evaluation = {};
  /// Evaluation mode draws and writes such things as training does, as the network of Python does.
  bool same_in_evaluation = false;
};

namespace interchange {
class LoadedProgram;
}  // namespace interchange

/// Inputs by name.
using ExportedInputs = std::map<std::string, c10::IValue, std::less<>>;

/// The result of a program's run.
class LEVIN_API ExportedOutput {
 public:
  explicit ExportedOutput(c10::IValue value) : value_(std::move(value)) {}

  /// The tensor of that key, where forward returned a dict or an object of named fields (Hugging Face's
  /// outputs). Throws Error "interchange.output", which lists the keys.
  at::Tensor operator[](std::string_view key) const;
  /// The one tensor that forward returned, or the only one of a tuple. Throws Error "interchange.output".
  at::Tensor tensor() const;
  /// Tuples, lists, and dicts of text to anything, as Python's.
  const c10::IValue& value() const { return value_; }

 private:
  c10::IValue value_;
};

/// A part of the module that was exported, under the name that it has in Python.
class LEVIN_API ExportedPart : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  /// The class of the Python module, "torch.nn.modules.conv.Conv2d"; empty where no operator was its own.
  const std::string& python_class() const { return python_class_; }

  /// x [.., in], weight [out, in], bias [out] or undefined -> [.., out]
  using Linear = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& bias)>;
  /// Returns whether it is an nn.Linear that the program runs.
  bool is_linear() const { return python_class_ == "torch.nn.modules.linear.Linear"; }
  /// What runs in place of aten::linear, of an nn.Linear: adapters are made so (models/lora.h). Empty: the
  /// operator itself again.
  void replace_linear(Linear linear) { linear_ = std::move(linear); }
  const Linear& replaced_linear() const { return linear_; }

 private:
  friend class interchange::LoadedProgram;
  std::string python_class_;
  Linear linear_;
};

/// Modules, parameters and buffers have Python's names, tied parameters are one tensor. forward runs the
/// program's operators one by one, above autograd, so that gradients are PyTorch's. train() and eval()
/// switch what torch.export wrote into the program: dropout, batch norm and its count of batches, the
/// dropout of attention. Errors of LibTorch in an operator name its line of Python.
class LEVIN_API ExportedModule : public ExportedPart {
 public:
  ~ExportedModule() override;

  /// Arguments by position, as Python's forward takes them; tensors, numbers, and tuples, lists and
  /// dicts as c10::IValue. Returns the one tensor that the program gives. Throws what run throws, and
  /// Error "interchange.output" where it gives something else.
  template <class... Args>
  at::Tensor forward(Args&&... args) {
    return run(std::vector<c10::IValue>{c10::IValue(std::forward<Args>(args))...}).tensor();
  }
  /// Throws Error "interchange.input" for an input that is missing, of another structure, of another
  /// number of dims or sizes than the program was exported for (dynamic dims: within their range), or
  /// not the constant that the program was exported with.
  ExportedOutput run(const std::vector<c10::IValue>& arguments, const ExportedInputs& named = {});
  /// Each argument of forward is the batch's field of that name. Fields that the program has no
  /// argument for are left alone, as a module's own step would. Throws what run throws.
  ExportedOutput run(const Batch& batch);

  /// Names of forward's arguments.
  const std::vector<std::string>& argument_names() const;
  /// Throws Error "interchange.mode", which names the operators, where the program does not say what the
  /// other mode computes: see ExportedOptions.
  void train(bool on = true) override;
  /// Buffers that are not in Python's state dict go with the module.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  friend LEVIN_API std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                                                 const ExportedOptions& options);
  friend LEVIN_API void reset_parameters(ExportedModule& net, const std::string& pattern);
  ExportedModule();
  const interchange::LoadedProgram& program() const;
  void convert_constants(at::ScalarType dtype);
  std::unique_ptr<interchange::LoadedProgram> program_;
  std::unique_ptr<interchange::LoadedProgram> evaluation_;  ///< nullptr: program_ does both
};

}  // namespace levin
