#pragma once
// load_exported: a network of Python, exported by torch.export, for training in C++.
//
//   # Python: torch.export.save(torch.export.export(net.train(), (x,), dynamic_shapes=({0: Dim("batch")},)), "net.pt2")
//   auto net = levin::load_exported("net.pt2");
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({}));

#include <filesystem>
#include <memory>

#include "levin/base/export.h"
#include "levin/interchange/exported_module.h"

namespace levin {

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

}  // namespace levin
