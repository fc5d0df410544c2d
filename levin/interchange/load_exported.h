#pragma once
// load_exported: a network of Python, exported by torch.export, for training in C++.
//
//   # Python: torch.export.save(torch.export.export(net.train(), (x,), dynamic_shapes=({0: Dim("batch")},)), "net.pt2")
//   auto net = levin::load_exported("net.pt2");
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));

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
#include "levin/module/jit_module.h"

// ExportedModule: a program of torch.export as a torch::nn::Module that trains.
// load_exported makes it; to Trainer, Accelerator and strategies it is a module as any other.
//
//   auto net = levin::load_exported("net.pt2");
//   at::Tensor logits = net->forward(images);                      // one tensor in, one out
//   auto out = net->run({{"input_ids", ids}, {"labels", labels}});  // by Python's names
//   out["loss"].backward();

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

/// A file of torch.export.save, of schema 8 (PyTorch 2.6 and newer). Export net.train() to train it:
/// eval() then switches to evaluation. Weights lie in the file's memory map until they are written to;
/// the file itself is never changed. Nothing of it is executed but operators that LibTorch or a library
/// of the program (TORCH_LIBRARY) has registered. Throws Error "files.read", "interchange.archive" for
/// another, damaged or newer file, "interchange.weights" for a file of weights that lacks tensors of the
/// program, has others, or others' shapes or dtypes, and "interchange.unsupported", which names all at once that levin
/// cannot run (torch.cond, flex attention, operators of libraries that are not loaded), each with its
/// line of Python.
LEVIN_API std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                                        const ExportedOptions& options = {});

// reset_parameters: fresh values for parts of an exported module, as their classes of torch.nn give
// them. Between load_exported and training: a network from scratch, or a new head on old weights.
//
//   auto net = levin::load_exported("net.pt2");
//   torch::manual_seed(3);
//   levin::reset_parameters(*net, "head.*");

/// Draws parameters whose names match the pattern ("*" stands for any text, "?" for one character), in the order of
/// Python's modules, with the formulas and the random numbers of Python's reset_parameters(): Linear, Bilinear,
/// convolutions, Embedding and EmbeddingBag with their padding's row, RNN, LSTM, GRU and their cells,
/// MultiheadAttention, Transformer, PReLU (0.25) and norms. The statistics of batch norm begin anew too. Other
/// buffers stay. Of one seed come the same values. A parameter of another class is Error "interchange.init",
/// which lists all of these with their classes, and so is a pattern that no name matches, or a parameter that is
/// divided over ranks already; nothing was changed then.
LEVIN_API void reset_parameters(ExportedModule& net, const std::string& pattern = "*");

// load_torchscript: a network that torch.jit.save wrote, for training in C++.
//
//   auto net = levin::load_torchscript("net.pt");  // torch.jit.script(net).save("net.pt") in Python
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));

/// torch::jit::load on the CPU, as a torch::nn::Module: see JitModule. It is in the mode that it was saved in.
/// TorchScript's code is run by LibTorch's interpreter: load files of people that you trust. Throws Error
/// "files.read", and "interchange.archive" for a file that is no TorchScript, damaged, or uses operators that
/// nobody has registered, with LibTorch's words.
LEVIN_API std::shared_ptr<JitModule> load_torchscript(const std::filesystem::path& path);

}  // namespace levin
