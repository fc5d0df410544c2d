#pragma once
// Messages of TensorBoard's event files: images, histograms, texts, hyperparameters and graphs, as
// torch.utils.tensorboard writes them. Not for users.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace levin::detail {

/// Summary.Value messages, by tag.
std::string image_summary(std::string_view tag, const at::Tensor& pixels);
/// The elements are finite, [N] of float64 on the CPU; N > 0.
std::string histogram_summary(std::string_view tag, const at::Tensor& values);
std::string text_summary(std::string_view tag, std::string_view text);

/// The three messages of the plugin hparams: columns, values of this run, and its end.
std::string experiment_summary(const std::map<std::string, std::string>& hyperparams,
                               const std::vector<std::string>& metrics);
std::string session_start_summary(const std::map<std::string, std::string>& hyperparams);
std::string session_end_summary(bool succeeded);

/// A GraphDef: a node per module without children and per parameter. The modules of a Sequential
/// follow one another.
std::string graph_of(const torch::nn::Module& module);

}  // namespace levin::detail
