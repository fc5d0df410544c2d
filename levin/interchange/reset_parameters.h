#pragma once
// reset_parameters: fresh values for parts of an exported module, as their classes of torch.nn give them.
// Between load_exported and training: a network from scratch, or a new head on old weights.
//
//   auto net = levin::load_exported("net.pt2");
//   torch::manual_seed(3);
//   levin::reset_parameters(*net, "head.*");

#include <string>

#include "levin/base/export.h"
#include "levin/interchange/exported_module.h"

namespace levin {

/// Draws parameters whose names match the pattern ("*" stands for any text, "?" for one character), in the order of
/// Python's modules, with the formulas and the random numbers of Python's reset_parameters(): Linear, Bilinear,
/// convolutions, Embedding and EmbeddingBag with their padding's row, RNN, LSTM, GRU and their cells,
/// MultiheadAttention, Transformer, PReLU (0.25) and norms. The statistics of batch norm begin anew too. Other
/// buffers stay. Of one seed come the same values. A parameter of another class is Error "interchange.init",
/// which lists all of these with their classes, and so is a pattern that no name matches, or a parameter that is
/// divided over ranks already; nothing was changed then.
LEVIN_API void reset_parameters(ExportedModule& net, const std::string& pattern = "*");

}  // namespace levin
