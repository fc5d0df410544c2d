#pragma once
// The layers that bodies and heads are made of: as torch.nn's, with memory that nobody has filled,
// since as a rule the weights come from a file.
//
//   auto q_proj = place(block, "self_attn.q_proj", std::make_shared<Linear>(width, width, true, 0.02));
//   q_proj->forward(x);                                   // [B, T, width]
//   draw_weights(root);                                   // where no file follows

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

#include "levin/models/layers/adaptable.h"

namespace levin::models {

/// Registers a module under a path of names below root, "attention.self.query"; modules that only hold
/// others stand between where they are missing. Returns the module.
void place_module(torch::nn::Module& root, const std::string& path,
                  std::shared_ptr<torch::nn::Module> module);
template <class Module>
std::shared_ptr<Module> place(torch::nn::Module& root, const std::string& path,
                              std::shared_ptr<Module> module) {
  place_module(root, path, module);
  return module;
}
/// The module at the path, made as a holder of others where it is missing.
torch::nn::Module& group_at(torch::nn::Module& root, const std::string& path);

/// A parameter [width] that stands alone at the path, drawn as 0.
at::Tensor place_bias(torch::nn::Module& root, const std::string& path, int64_t width);

/// Draws the weights of all layers below root, in the order of their registration.
void draw_weights(torch::nn::Module& root);

/// Draws normal numbers with a mean of 0, drawn anew beyond `cutoff` deviations if that is above 0.
void draw_normal(at::Tensor weight, double deviation, double cutoff);

class Linear : public Adaptable {
 public:
  Linear(int64_t in, int64_t out, bool bias, double deviation, double cutoff = 0);

  at::Tensor forward(const at::Tensor& x) const;  // [.., in] -> [.., out]
  void draw() override;
  int64_t in_width() const override { return weight_.size(1); }
  int64_t out_width() const override { return weight_.size(0); }
  const at::Tensor& matrix() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }  ///< undefined where it has none

 protected:
  at::Tensor weight() const override { return weight_; }
  at::Tensor rows(const at::Tensor& weight) const override { return weight; }

 private:
  at::Tensor weight_, bias_;  // [out, in], [out] or undefined
  double deviation_, cutoff_;
};

class Embedding : public Layer {
 public:
  /// padding: the row that gets no gradient; -1: none.
  Embedding(int64_t rows, int64_t width, double deviation, int64_t padding = -1, double cutoff = 0);

  at::Tensor forward(const at::Tensor& ids) const;  // int64 [..] -> [.., width]
  void draw() override;
  const at::Tensor& weight() const { return weight_; }

 private:
  at::Tensor weight_;
  double deviation_, cutoff_;
  int64_t padding_;
};

class LayerNorm : public Layer {
 public:
  LayerNorm(int64_t width, double eps, bool bias = true);

  at::Tensor forward(const at::Tensor& x) const;
  void draw() override;

 private:
  at::Tensor weight_, bias_;
  double eps_;
};

/// Root mean square norm (Zhang & Sennrich 2019) in float32. Llama's is cast back and then multiplied
/// by the weight; Gemma's (one_plus) multiplies by 1 + weight and is cast then.
class RmsNorm : public Layer {
 public:
  RmsNorm(int64_t width, double eps, bool one_plus = false);

  at::Tensor forward(const at::Tensor& x) const;
  void draw() override;

 private:
  at::Tensor weight_;
  double eps_;
  bool one_plus_;
};

/// The names of transformers' ACT2FN that text models use; Error "models.activation" for another.
using Activation = at::Tensor (*)(const at::Tensor&);
Activation activation_of(const std::string& name);

}  // namespace levin::models
