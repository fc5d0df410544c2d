#include "levin/models/layers/layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <torch/nn/init.h>

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/models/layers/row_arithmetic.h"

namespace levin::models {
namespace {

/// Holds other modules, and biases of heads whose matrix stands elsewhere.
struct Group : Layer {
  void draw() override {
    for (const at::Tensor& bias : parameters(/*recurse=*/false)) torch::nn::init::zeros_(bias);
  }
};

/// "cls.predictions.bias" -> "cls.predictions" and "bias"
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

at::Tensor silu(const at::Tensor& x) { return at::silu(x); }
at::Tensor gelu(const at::Tensor& x) { return at::gelu(x); }
at::Tensor gelu_tanh(const at::Tensor& x) { return at::gelu(x, "tanh"); }
at::Tensor quick_gelu(const at::Tensor& x) { return x * at::sigmoid(1.702 * x); }
at::Tensor relu(const at::Tensor& x) { return at::relu(x); }
at::Tensor tanh(const at::Tensor& x) { return at::tanh(x); }

}  // namespace

torch::nn::Module& group_at(torch::nn::Module& root, const std::string& path) {
  torch::nn::Module* at = &root;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const auto children = at->named_children();
    const auto* found = children.find(name);
    at = (found != nullptr ? *found : at->register_module(name, std::make_shared<Group>())).get();
    begin = end + 1;
  }
  return *at;
}

void place_module(torch::nn::Module& root, const std::string& path,
                  std::shared_ptr<torch::nn::Module> module) {
  const auto [group, name] = split_path(path);
  group_at(root, group).register_module(name, std::move(module));
}

at::Tensor place_bias(torch::nn::Module& root, const std::string& path, int64_t width) {
  const auto [group, name] = split_path(path);
  return group_at(root, group).register_parameter(name, at::empty({width}));
}

void draw_weights(torch::nn::Module& root) {
  for (const auto& module : root.modules()) {
    if (auto* layer = dynamic_cast<Layer*>(module.get())) layer->draw();
  }
}

void draw_normal(at::Tensor weight, double deviation, double cutoff) {
  if (cutoff <= 0) {
    torch::nn::init::normal_(weight, 0.0, deviation);
    return;
  }
  // By the inverse of the distribution, as torch.nn.init.trunc_normal_.
  const torch::NoGradGuard no_grad;
  const double tail = std::erf(cutoff / std::numbers::sqrt2);
  weight.uniform_(-tail, tail).erfinv_().mul_(deviation * std::numbers::sqrt2);
  weight.clamp_(-cutoff * deviation, cutoff * deviation);
}

Linear::Linear(int64_t in, int64_t out, bool bias, double deviation, double cutoff)
    : deviation_(deviation), cutoff_(cutoff) {
  weight_ = register_parameter("weight", at::empty({out, in}));
  if (bias) bias_ = register_parameter("bias", at::empty({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  at::Tensor y = row_product(x, weight_, bias_);
  if (!y.defined() && adapts()) {
    if (at::Tensor whole = fused(x, bias_); whole.defined()) return whole;
  }
  if (!y.defined()) y = at::linear(x, weight_, bias_);
  return adapts() ? adapted(x, y, bias_) : y;
}

void Linear::draw() {
  draw_normal(weight_, deviation_, cutoff_);
  if (bias_.defined()) torch::nn::init::zeros_(bias_);
}

Embedding::Embedding(int64_t rows, int64_t width, double deviation, int64_t padding, double cutoff)
    : deviation_(deviation), cutoff_(cutoff), padding_(padding) {
  weight_ = register_parameter("weight", at::empty({rows, width}));
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return at::embedding(weight_, ids, padding_);
}

void Embedding::draw() {
  draw_normal(weight_, deviation_, cutoff_);
  const torch::NoGradGuard no_grad;
  if (padding_ >= 0) weight_[padding_].zero_();
}

LayerNorm::LayerNorm(int64_t width, double eps, bool bias) : eps_(eps) {
  weight_ = register_parameter("weight", at::empty({width}));
  if (bias) bias_ = register_parameter("bias", at::empty({width}));
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  if (at::Tensor y = row_layer_norm(x, weight_, bias_, eps_); y.defined()) return y;
  return at::layer_norm(x, {weight_.size(0)}, weight_, bias_, eps_);
}

void LayerNorm::draw() {
  torch::nn::init::ones_(weight_);
  if (bias_.defined()) torch::nn::init::zeros_(bias_);
}

RmsNorm::RmsNorm(int64_t width, double eps, bool one_plus) : eps_(eps), one_plus_(one_plus) {
  weight_ = register_parameter("weight", at::empty({width}));
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  if (at::Tensor y = row_rms_norm(x, weight_, eps_, one_plus_); y.defined()) return y;
  const auto wide = x.to(at::kFloat);
  const auto normal = wide * at::rsqrt(wide.pow(2).mean(-1, /*keepdim=*/true) + eps_);
  if (one_plus_) return (normal * (1.0 + weight_.to(at::kFloat))).to(x.scalar_type());
  return weight_ * normal.to(x.scalar_type());
}

void RmsNorm::draw() { torch::nn::init::constant_(weight_, one_plus_ ? 0.0 : 1.0); }

Activation activation_of(const std::string& name) {
  static const std::vector<std::pair<std::string, Activation>> known{
      {"gelu", gelu},
      {"gelu_new", gelu_tanh},
      {"gelu_pytorch_tanh", gelu_tanh},
      {"quick_gelu", quick_gelu},
      {"relu", relu},
      {"silu", silu},
      {"swish", silu},
      {"tanh", tanh}};
  std::vector<std::string> names;
  for (const auto& [each, function] : known) {
    if (each == name) return function;
    names.push_back(each);
  }
  const auto near = nearest(name, names);
  LEVIN_FAIL("models.activation", "got activation '{}', wanted one of {}{}", printable(name),
             to_text(names), near ? "; nearest is " + *near : "");
}

}  // namespace levin::models
