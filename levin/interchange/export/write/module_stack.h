#pragma once
// ModuleStack: which module of the tree runs each call, which LibTorch does not tell. A call with parameters
// or buffers is its module's; between two of them it is of the module that both are in.
// Not for users.

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

#include "levin/interchange/export/record/recording.h"

namespace levin::interchange {

class ModuleStack {
 public:
  ModuleStack(const torch::nn::Module& root, const std::vector<ModuleTensor>& tensors,
              const Recording& recording);

  /// "L__self__,,Net;L__self___conv,conv,torch.nn.modules.conv.Conv2d"
  std::string text(size_t call) const;
  /// Returns the text of the root alone.
  std::string root() const { return "L__self__,," + classes_.at(""); }
  /// Returns the paths of all modules, the root "" first.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
  std::map<std::string, std::string> classes_;  ///< by path
  std::vector<std::string> path_of_call_;
};

/// "torch.nn.modules.conv.Conv2d" for torch::nn::Conv2dImpl, "net.Net" for net::Net: what cannot stand in a
/// stack is replaced.
std::string python_class_of(const torch::nn::Module& module);

}  // namespace levin::interchange
