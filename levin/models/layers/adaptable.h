#pragma once
// Adaptable: a layer of one matrix that can carry an adapter: LoRA (Hu et al. 2021), and if wanted
// with a magnitude of its own (DoRA, Liu et al. 2024).

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace levin::models {

/// Bodies and heads are made of these layers, with weights that nobody has filled at first.
class Layer : public torch::nn::Module {
 public:
  /// Initializes the parameters as transformers' _init_weights does.
  virtual void draw() = 0;
};

struct LoraShape {
  int64_t r = 8;
  double scale = 1;  ///< factor of the adapter's product
  double dropout = 0;
  bool dora = false;
};

/// The adapter's parameters are lora_A.weight [r, in] and lora_B.weight [out, r], and with DoRA
/// lora_magnitude_vector [out], below this module: PEFT's names. float32 whatever the matrix is.
class Adaptable : public Layer {
 public:
  virtual int64_t in_width() const = 0;
  virtual int64_t out_width() const = 0;
  virtual bool is_transposed() const { return false; }  ///< the matrix lies as [in, out]

  /// Drawn as PEFT draws it: it changes nothing at first.
  void add_lora(const LoraShape& shape);
  bool has_lora() const { return a_.defined(); }
  void set_adapter_enabled(bool on) { enabled_ = on; }

  /// The layer's parameter with the adapter in it, in its own layout and type.
  at::Tensor merged_weight() const;
  void merge();
  void unmerge();  ///< the parameter from before, to the bit
  bool is_merged() const { return before_merge_.defined(); }

 protected:
  bool adapts() const { return a_.defined() && enabled_ && !is_merged(); }
  /// The adapted layer for x in one node of autograd, which keeps less and writes less than adapted();
  /// undefined where that cannot be: with DoRA, a matrix that trains, an adapter of another type.
  at::Tensor fused(const at::Tensor& x, const at::Tensor& bias) const;
  /// Returns the layer's output for x, from its output without the adapter.
  at::Tensor adapted(const at::Tensor& x, const at::Tensor& base, const at::Tensor& bias) const;

  virtual at::Tensor weight() const = 0;
  /// A tensor of the parameter's layout as [out, in], or one of [out, in] in that layout.
  virtual at::Tensor rows(const at::Tensor& weight) const = 0;

 private:
  at::Tensor delta() const;                         // float32 [out, in]
  at::Tensor norms(const at::Tensor& added) const;  // float32 [out]: of rows of matrix and adapter

  LoraShape shape_;
  at::Tensor a_, b_, magnitude_, before_merge_;
  bool enabled_ = true;
};

}  // namespace levin::models
