// LoRA on programs of torch.export: the operator of an nn.Linear is run with two small matrices beside it.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/atomic.h"
#include "levin/interchange/load_exported.h"
#include "levin/models/adapters/config.h"
#include "levin/models/adapters/names.h"
#include "levin/models/layers/adapted_product.h"
#include "levin/models/lora.h"

namespace levin::lora {
namespace {

namespace fs = std::filesystem;

/// One adapter, shared by all of its layers.
struct Adapter {
  LoraOptions options;
  AdaptedNetwork network;
};

/// A matrix under PEFT's name; lora_A knows the adapter too.
struct Matrix : torch::nn::Module {
  at::Tensor weight;
  std::shared_ptr<const Adapter> adapter;  ///< nullptr: lora_B
  double scale = 1;
  at::Tensor before_merge;

  explicit Matrix(const at::Tensor& values) : weight(register_parameter("weight", values)) {}
};

/// An adapted layer.
struct Layer {
  std::string name;
  ExportedPart* part = nullptr;
  std::shared_ptr<Matrix> a, b;
};

std::shared_ptr<Matrix> matrix_of(const ExportedPart& part, const char* name) {
  const auto children = part.named_children();
  return children.contains(name) ? std::dynamic_pointer_cast<Matrix>(children[name]) : nullptr;
}

std::vector<Layer> layers_of(const ExportedModule& net) {
  std::vector<Layer> layers;
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    auto* part = dynamic_cast<ExportedPart*>(module.value().get());
    if (part == nullptr) continue;
    if (const auto a = matrix_of(*part, "lora_A"); a != nullptr) {
      layers.push_back({module.key(), part, a, matrix_of(*part, "lora_B")});
    }
  }
  return layers;
}

std::vector<NamedModule> modules_of(const ExportedModule& net) {
  std::vector<NamedModule> modules;
  for (const auto& module : net.named_modules("", /*include_self=*/false)) {
    const auto* part = dynamic_cast<const ExportedPart*>(module.value().get());
    modules.push_back({module.key(), part != nullptr && part->is_linear()});
  }
  return modules;
}

at::Tensor adapted(const Matrix& a, const Matrix& b, const at::Tensor& x, const at::Tensor& weight,
                   const at::Tensor& bias) {
  if (a.before_merge.defined()) return at::linear(x, weight, bias);
  const double dropout = a.is_training() ? a.adapter->options.lora_dropout : 0;
  const at::Tensor fused = models::adapted_product(x, {.matrix = weight,
                                                       .bias = bias,
                                                       .a = a.weight,
                                                       .b = b.weight,
                                                       .scale = a.scale,
                                                       .dropout = dropout});
  if (fused.defined()) return fused;
  const at::Tensor base = at::linear(x, weight, bias);
  const at::Tensor wide = at::dropout(x.to(a.weight.scalar_type()), dropout, dropout > 0);
  const at::Tensor added = at::linear(at::linear(wide, a.weight), b.weight) * a.scale;
  return base + added.to(base.scalar_type());
}

/// Draws the matrices as PEFT does.
void add_layer(ExportedPart& part, const std::shared_ptr<const Adapter>& adapter, int64_t r,
               double alpha) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = part.named_parameters(/*recurse=*/false)["weight"];
  const auto options = weight.options().dtype(at::kFloat).requires_grad(false);
  const at::Tensor down = at::zeros({r, weight.size(1)}, options);
  torch::nn::init::kaiming_uniform_(down, std::sqrt(5.0));
  const auto a = std::make_shared<Matrix>(down);
  const auto b = std::make_shared<Matrix>(at::zeros({weight.size(0), r}, options));
  const auto rank = static_cast<double>(r);
  a->adapter = adapter;
  a->scale = alpha / (adapter->options.use_rslora ? std::sqrt(rank) : rank);
  a->train(part.is_training());
  b->train(part.is_training());
  part.register_module("lora_A", a);
  part.register_module("lora_B", b);
  part.replace_linear([a, b](const at::Tensor& x, const at::Tensor& matrix,
                             const at::Tensor& bias) { return adapted(*a, *b, x, matrix, bias); });
}

void check(const ExportedModule& net, const LoraOptions& options) {
  check_numbers(options);
  LEVIN_CHECK(!options.use_dora && !options.ensure_weight_tying, "models.lora.options",
              "got use_dora or ensure_weight_tying for an exported module, which supports plain "
              "LoRA only; leave them unset");
  LEVIN_CHECK(layers_of(net).empty(), "models.lora.twice",
              "the module already has an adapter; merge it and save its weights, or load the "
              "program again");
}

/// Parameters that several names share would be trained, or merged into, under all of them.
void check_not_shared(const ExportedModule& net, const std::vector<std::string>& modules) {
  std::map<const c10::TensorImpl*, std::string> first;
  for (const auto& each : net.named_parameters()) {
    const auto [known, is_new] = first.try_emplace(each.value().unsafeGetTensorImpl(), each.key());
    LEVIN_CHECK(
        is_new || (!is_below(each.key(), modules) && !is_below(known->second, modules)),
        "models.lora.options",
        "{} and {} share one matrix (tied weights), which levin cannot adapt; name other modules",
        known->second, each.key());
  }
}

void add(ExportedModule& net, const LoraOptions& options, Names names) {
  check(net, options);
  const auto modules = modules_of(net);
  const auto adapter = std::make_shared<Adapter>();
  adapter->options = options;
  AdaptedNetwork& network = adapter->network;
  check_whole(modules, options, names);
  network.whole = named_whole(modules, options.modules_to_save);
  network.targets = target_names(modules, options, /*defaults=*/{}, network.whole, names);
  network.task_type = options.task_type.value_or("");
  check_not_shared(net, network.targets);
  check_not_shared(net, network.whole);
  for (const auto& each : net.named_parameters()) {
    at::Tensor(each.value()).set_requires_grad(is_below(each.key(), network.whole));
  }
  const auto parts = net.named_modules("", /*include_self=*/false);
  for (const std::string& name : network.targets) {
    add_layer(dynamic_cast<ExportedPart&>(*parts[name]), adapter,
              of_pattern(options.rank_pattern, name, options.r, "rank_pattern"),
              of_pattern(options.alpha_pattern, name, options.lora_alpha, "alpha_pattern"));
  }
}

/// By their names in an adapter's file.
std::map<std::string, at::Tensor> own_weights(const ExportedModule& net,
                                              const std::vector<Layer>& layers) {
  std::map<std::string, at::Tensor> weights;
  const auto& whole = layers.front().a->adapter->network.whole;
  for (const auto& each : net.named_parameters()) {
    if (is_below(each.key(), whole)) weights.emplace(kPrefix + each.key(), each.value());
  }
  for (const Layer& layer : layers) {
    weights.emplace(kPrefix + layer.name + ".lora_A.weight", layer.a->weight);
    weights.emplace(kPrefix + layer.name + ".lora_B.weight", layer.b->weight);
  }
  return weights;
}

}  // namespace

void add(ExportedModule& net, const LoraOptions& options) { add(net, options, Names::kAll); }

void save(const ExportedModule& net, const fs::path& folder) {
  const auto layers = layers_of(net);
  LEVIN_CHECK(!layers.empty(), "models.lora.none",
              "the module has no adapter; add one with lora::add");
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(), error.message());
  State weights;
  for (const auto& [name, tensor] : own_weights(net, layers)) weights.set(name, tensor.detach());
  save_weights(folder / kWeights, weights);
  const Adapter& adapter = *layers.front().a->adapter;
  files::write_file_atomically(folder / kConfig, config_text(adapter.options, adapter.network));
}

void load(ExportedModule& net, const fs::path& folder) {
  const LoraOptions options = read_config(folder / kConfig);
  const State weights = read_weights(folder);
  add(net, options, Names::kSome);
  std::map<std::string, at::Tensor> own = own_weights(net, layers_of(net));
  for (const auto& [name, value] : weights.values()) {
    const auto found = own.find(name);
    LEVIN_CHECK(
        found != own.end(), "models.lora.weights",
        "{} holds {}, but the module has no such weight; the adapter belongs to another model",
        folder.string(), printable(name));
    const at::Tensor& given = weights.tensor(name);
    LEVIN_CHECK(given.sizes() == found->second.sizes(), "models.lora.weights",
                "{}: {} has sizes {}, wanted {}; the adapter belongs to another model",
                folder.string(), printable(name), c10::str(given.sizes()),
                c10::str(found->second.sizes()));
    const at::NoGradGuard no_grad;
    found->second.copy_(given);
    own.erase(found);
  }
  LEVIN_CHECK(own.empty(), "models.lora.weights",
              "{} has no weights for {}; the adapter is incomplete, or belongs to another model",
              folder.string(), own.begin()->first);
}

void merge(ExportedModule& net) {
  const at::NoGradGuard no_grad;
  for (const Layer& layer : layers_of(net)) {
    if (layer.a->before_merge.defined()) continue;
    at::Tensor weight = layer.part->named_parameters(/*recurse=*/false)["weight"];
    const at::Tensor added = layer.b->weight.matmul(layer.a->weight) * layer.a->scale;
    layer.a->before_merge = weight.detach().alias();
    weight.set_data((weight.to(at::kFloat) + added).to(weight.scalar_type()));
  }
}

void unmerge(ExportedModule& net) {
  for (const Layer& layer : layers_of(net)) {
    if (!layer.a->before_merge.defined()) continue;
    at::Tensor weight = layer.part->named_parameters(/*recurse=*/false)["weight"];
    weight.set_data(layer.a->before_merge);
    layer.a->before_merge = at::Tensor();
  }
}

}  // namespace levin::lora
