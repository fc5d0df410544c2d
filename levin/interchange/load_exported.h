#pragma once
// load_exported: loads a network that torch.export exported in Python, and trains it in C++.
//
//   # Python: shapes = ({0: Dim("batch")},)
//   # Python: program = torch.export.export(net.train(), (x,), dynamic_shapes=shapes)
//   # Python: torch.export.save(program, "net.pt2")
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

// ExportedModule: a program of torch.export as a torch::nn::Module that can be trained.
// load_exported returns it. Trainer, Accelerator and strategies treat it as any other module.
//
//   auto net = levin::load_exported("net.pt2");
//   at::Tensor logits = net->forward(images);                      // one tensor in, one out
//   auto out = net->run({{"input_ids", ids}, {"labels", labels}});  // by Python's argument names
//   out["loss"].backward();

namespace levin {

/// Options of load_exported().
struct ExportedOptions {
  /// Values of parameters and buffers by their names in Python, which replace those in the archive:
  /// a file or folder that load_weights() reads. They stay in its memory map until they are written
  /// to; the file itself never changes. The archive then needs no values. One name of tied weights
  /// is enough.
  std::filesystem::path weights = {};
  /// Dropout probability of attention in training, for a program that was exported in evaluation
  /// mode, where scaled_dot_product_attention has no dropout. Unset: training such a program is an
  /// error.
  std::optional<double> attention_dropout = {};
  /// The same network exported after net.eval(). Evaluation mode runs it, on the same tensors. It
  /// is needed for a program that draws random numbers other than nn.Dropout (stochastic depth),
  /// that writes buffers other than those of batch norm (spectral norm), or whose forward reads
  /// self.training.
  std::filesystem::path evaluation = {};
  /// Evaluation mode draws random numbers and writes buffers as training mode does, because the
  /// Python network does so too.
  bool same_in_evaluation = false;
};

namespace interchange {
class LoadedProgram;
}  // namespace interchange

/// Inputs of a program by argument name.
using ExportedInputs = std::map<std::string, c10::IValue, std::less<>>;

/// The outputs of a program.
class LEVIN_API ExportedOutput {
 public:
  /// Takes the value that forward returned.
  explicit ExportedOutput(c10::IValue value) : value_(std::move(value)) {}

  /// Returns the tensor of a key, if forward returned a dict or an object with named fields
  /// (outputs of Hugging Face models). Throws Error "interchange.output", which lists the keys.
  at::Tensor operator[](std::string_view key) const;
  /// Returns the tensor that forward returned, alone or as the only one in a tuple. Throws Error
  /// "interchange.output" if it returned something else.
  at::Tensor tensor() const;
  /// The value that forward returned: tuples, lists and dicts with string keys are nested as in
  /// Python.
  const c10::IValue& value() const { return value_; }

 private:
  c10::IValue value_;
};

/// A submodule of the exported module, under its name in Python.
class LEVIN_API ExportedPart : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  /// Class of the Python module, such as "torch.nn.modules.conv.Conv2d"; empty if the module runs
  /// no operator itself.
  const std::string& python_class() const { return python_class_; }

  /// Function that computes a linear layer: x [..., in], weight [out, in], bias [out] or undefined
  /// -> [..., out].
  using Linear = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& bias)>;
  /// Returns whether the module is an nn.Linear that the program runs.
  bool is_linear() const { return python_class_ == "torch.nn.modules.linear.Linear"; }
  /// Replaces aten::linear in this nn.Linear by a function; LoRA adapters use it (models/lora.h).
  /// An empty function restores the operator.
  void replace_linear(Linear linear) { linear_ = std::move(linear); }
  /// The function of replace_linear(); empty if there is none.
  const Linear& replaced_linear() const { return linear_; }

 private:
  friend class interchange::LoadedProgram;
  std::string python_class_;
  Linear linear_;
};

/// An exported network. Modules, parameters and buffers have their names in Python, and tied
/// parameters are one tensor. forward() runs the operators of the program one by one under
/// autograd, so gradients are those of PyTorch. train() and eval() switch what torch.export fixed
/// in the program: dropout, batch norm with its count of batches, and the dropout of attention. An
/// error of LibTorch in an operator names its line of Python code.
class LEVIN_API ExportedModule : public ExportedPart {
 public:
  ~ExportedModule() override;

  /// Runs the program and returns the tensor that it gives. Arguments are passed by position, as to
  /// Python's forward: tensors, numbers, and tuples, lists and dicts as c10::IValue. Throws the
  /// errors of run(), and Error "interchange.output" if the program gives something other than one
  /// tensor.
  template <class... Args>
  at::Tensor forward(Args&&... args) {
    return run(std::vector<c10::IValue>{c10::IValue(std::forward<Args>(args))...}).tensor();
  }
  /// Runs the program with arguments by position and by name. Throws Error "interchange.input" for
  /// an input that is missing, has another structure, or has another number of dims or other sizes
  /// than the program was exported for (dynamic dims: outside their range), and for an input that
  /// differs from the constant that the program was exported with.
  ExportedOutput run(const std::vector<c10::IValue>& arguments, const ExportedInputs& named = {});
  /// Runs the program; each argument of forward is the field of that name in the batch. Further
  /// fields are ignored. Throws the errors of the other run().
  ExportedOutput run(const Batch& batch);

  /// Names of the arguments of forward.
  const std::vector<std::string>& argument_names() const;
  /// Sets training or evaluation mode. Throws Error "interchange.mode", which names the operators,
  /// if the program does not determine what the other mode computes; see ExportedOptions.
  void train(bool on = true) override;
  /// Moves and converts the module, and also buffers that are not in Python's state dict.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  /// Converts the module to a dtype.
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  /// Moves the module to a device.
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

/// Loads a file of torch.export.save with schema 8 (PyTorch 2.6 and newer). Export net.train() to
/// train the network; eval() then switches to evaluation. Weights lie in the memory map of the file
/// until they are written to; the file itself never changes. No code of the file is executed: it
/// only names operators that LibTorch or a library of the program (TORCH_LIBRARY) has registered.
///
/// Throws Error "files.read"; "interchange.archive" for a file that is damaged, newer or not an
/// exported program; "interchange.weights" for a weights file with missing or unexpected tensors,
/// or with other shapes or dtypes than the program; and "interchange.unsupported", which names
/// everything that levin cannot run (torch.cond, flex attention, operators of libraries that are
/// not loaded), each with its line of Python code.
LEVIN_API std::shared_ptr<ExportedModule> load_exported(const std::filesystem::path& path,
                                                        const ExportedOptions& options = {});

// reset_parameters: initializes parts of an exported module again, as their classes in torch.nn do.
// Call it between load_exported and training, for a network from scratch or a new head on old
// weights.
//
//   auto net = levin::load_exported("net.pt2");
//   torch::manual_seed(3);
//   levin::reset_parameters(*net, "head.*");

/// Initializes the parameters whose names match the pattern ("*" matches any text, "?" one
/// character), in the order of the Python modules. Formulas and random numbers are those of
/// reset_parameters() in Python, so the same seed gives the same values. Supported are Linear,
/// Bilinear, convolutions, Embedding and EmbeddingBag with their padding row, RNN, LSTM, GRU and
/// their cells, MultiheadAttention, Transformer, PReLU (0.25) and norms. The running statistics of
/// batch norm are reset too; other buffers are kept. Throws Error "interchange.init" for parameters
/// of other classes (the message lists all of them with their classes), for a pattern that no name
/// matches, and for a parameter that is sharded already. After an error nothing has changed.
LEVIN_API void reset_parameters(ExportedModule& net, const std::string& pattern = "*");

// load_torchscript: loads a network that torch.jit.save wrote, and trains it in C++.
//
//   # Python: torch.jit.script(net).save("net.pt")
//   auto net = levin::load_torchscript("net.pt");
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));

/// Loads a TorchScript file on the CPU, as torch::jit::load, and returns it as a torch::nn::Module
/// (see JitModule). It is in the mode (training or evaluation) in which it was saved. The
/// interpreter of LibTorch runs the code in the file: load only files from people that you trust.
/// Throws Error "files.read", and "interchange.archive", with the message of LibTorch, for a file
/// that is damaged, is not TorchScript, or uses operators that are not registered.
LEVIN_API std::shared_ptr<JitModule> load_torchscript(const std::filesystem::path& path);

}  // namespace levin
