#pragma once
// Networks of C++ that are exported as programs of torch.export, for program_exports_test.cpp.

#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "levin/data/batch.h"
#include "levin/interchange/export_program.h"

namespace levin::test {

struct ExportCase {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  detail::ExportedForward forward;
  std::function<void(const std::filesystem::path&)> write;
  /// The same example and dims for a module that load_exported made of it.
  std::function<void(const std::shared_ptr<ExportedModule>&, const std::filesystem::path&)>
      write_again;
  std::vector<Batch> inputs;  ///< of three sizes
  bool trains = true;         ///< its gradients are compared too
  bool onnx = true;           ///< torch.onnx has its operators
  bool compiled = false;      ///< AOTInductor compiles it, which takes 20 s
};

/// Made anew from a seed.
std::vector<ExportCase> export_cases();

}  // namespace levin::test
