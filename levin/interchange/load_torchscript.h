#pragma once
// load_torchscript: a network that torch.jit.save wrote, for training in C++.
//
//   auto net = levin::load_torchscript("net.pt");      // torch.jit.script(net).save("net.pt") in Python
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));

#include <filesystem>
#include <memory>

#include "levin/base/export.h"
#include "levin/module/jit_module.h"

namespace levin {

/// torch::jit::load on the CPU, as a torch::nn::Module: see JitModule. It is in the mode that it was saved in.
/// TorchScript's code is run by LibTorch's interpreter: load files of people that you trust. Throws Error
/// "files.read", and "interchange.archive" for a file that is no TorchScript, damaged, or uses operators that
/// nobody has registered, with LibTorch's words.
LEVIN_API std::shared_ptr<JitModule> load_torchscript(const std::filesystem::path& path);

}  // namespace levin
