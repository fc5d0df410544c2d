#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/load_exported.h"
#include "levin/interchange/loaded_program.h"
#include "levin/module/optimizer_config.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {
namespace {

namespace init = torch::nn::init;

/// The tensors of one module that are asked for, by their names in it; in the order of Python's.
struct Part {
  std::string path;  ///< "encoder.attention"; empty: the root
  std::string kind;  ///< "Conv2d"; empty: none of torch.nn's
  std::string python_class;
  std::vector<std::pair<std::string, at::Tensor>> own;  ///< all of them
  std::set<std::string> asked;
  std::set<std::string> done;

  std::string full(const std::string& name) const {
    return path.empty() ? name : path + "." + name;
  }
  at::Tensor find(std::string_view name) const {
    const auto found = std::ranges::find(own, name, [](const auto& each) { return each.first; });
    return found == own.end() ? at::Tensor() : found->second;
  }
  /// The tensor of that name for writing, where it is there and asked for.
  at::Tensor take(const std::string& name) {
    if (!asked.contains(name)) return {};
    done.insert(name);
    return find(name);
  }
};

/// Draws values in the second of two passes; the first only collects the unknown ones.
class Drawing {
 public:
  explicit Drawing(bool is_real) : is_real_(is_real) {}

  void kaiming(const at::Tensor& weight) const {
    if (is_drawn(weight)) init::kaiming_uniform_(weight, std::sqrt(5.0));
  }
  void xavier(const at::Tensor& weight) const {
    if (is_drawn(weight)) init::xavier_uniform_(weight);
  }
  void xavier_normal(const at::Tensor& weight) const {
    if (is_drawn(weight)) init::xavier_normal_(weight);
  }
  void uniform(const at::Tensor& tensor, double bound) const {
    if (is_drawn(tensor)) init::uniform_(tensor, -bound, bound);
  }
  void normal(const at::Tensor& tensor) const {
    if (is_drawn(tensor)) init::normal_(tensor);
  }
  void fill(const at::Tensor& tensor, double value) const {
    if (is_drawn(tensor)) init::constant_(tensor, value);
  }
  void fill_row(const at::Tensor& tensor, int64_t row, double value) const {
    if (is_drawn(tensor)) at::Tensor(tensor).select(0, row).fill_(value);
  }

 private:
  bool is_drawn(const at::Tensor& tensor) const { return is_real_ && tensor.defined(); }
  bool is_real_;
};

using PaddingOf = std::function<std::optional<int64_t>(const std::string& parameter)>;

/// 1 / sqrt of the inputs of one output: torch.nn.init._calculate_fan_in_and_fan_out.
double bound_of(const at::Tensor& weight) {
  const auto inputs = static_cast<double>(std::get<0>(init::_calculate_fan_in_and_fan_out(weight)));
  return inputs > 0 ? 1 / std::sqrt(inputs) : 0;
}

void reset_linear(Part& part, const Drawing& draw) {
  const at::Tensor weight = part.find("weight");
  draw.kaiming(part.take("weight"));
  if (weight.defined()) draw.uniform(part.take("bias"), bound_of(weight));
}

void reset_bilinear(Part& part, const Drawing& draw) {
  const at::Tensor weight = part.find("weight");
  if (!weight.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));
  draw.uniform(part.take("weight"), bound);
  draw.uniform(part.take("bias"), bound);
}

void reset_norm(Part& part, const Drawing& draw) {
  draw.fill(part.take("running_mean"), 0);
  draw.fill(part.take("running_var"), 1);
  draw.fill(part.take("num_batches_tracked"), 0);
  draw.fill(part.take("weight"), 1);
  draw.fill(part.take("bias"), 0);
}

void reset_embedding(Part& part, const Drawing& draw, const PaddingOf& padding_of) {
  const at::Tensor weight = part.take("weight");
  draw.normal(weight);
  if (!weight.defined()) return;
  const auto row = padding_of(part.full("weight"));
  if (row && *row < weight.size(0)) draw.fill_row(weight, *row, 0);
}

/// gates: how many matrices of hidden rows stand in one.
void reset_recurrent(Part& part, const Drawing& draw, int64_t gates) {
  const at::Tensor matrix =
      part.find("weight_hh_l0").defined() ? part.find("weight_hh_l0") : part.find("weight_hh");
  if (!matrix.defined()) return;
  const int64_t rows = matrix.size(0) / gates;
  const auto hidden = static_cast<double>(rows);
  for (const auto& [name, tensor] : part.own) {
    if (name.starts_with("weight_") || name.starts_with("bias_")) {
      draw.uniform(part.take(name), hidden > 0 ? 1 / std::sqrt(hidden) : 0);
    }
  }
}

/// out_proj, which no operator runs by itself, is a part of it here.
void reset_attention(Part& part, const Drawing& draw) {
  draw.kaiming(part.take("out_proj.weight"));
  for (const char* name : {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
    draw.xavier(part.take(name));
  }
  draw.fill(part.take("in_proj_bias"), 0);
  draw.fill(part.take("out_proj.bias"), 0);
  draw.xavier_normal(part.take("bias_k"));
  draw.xavier_normal(part.take("bias_v"));
}

void reset(Part& part, const Drawing& draw, const PaddingOf& padding_of) {
  const auto is = [&](std::initializer_list<std::string_view> kinds) {
    return std::ranges::find(kinds, part.kind) != kinds.end();
  };
  if (is({"Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
          "ConvTranspose3d"})) {
    reset_linear(part, draw);
  } else if (is({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "InstanceNorm1d",
                 "InstanceNorm2d", "InstanceNorm3d", "LayerNorm", "GroupNorm", "RMSNorm"})) {
    reset_norm(part, draw);
  } else if (is({"Embedding", "EmbeddingBag"})) {
    reset_embedding(part, draw, padding_of);
  } else if (is({"LSTM", "LSTMCell"})) {
    reset_recurrent(part, draw, 4);
  } else if (is({"GRU", "GRUCell"})) {
    reset_recurrent(part, draw, 3);
  } else if (is({"RNN", "RNNCell"})) {
    reset_recurrent(part, draw, 1);
  } else if (is({"MultiheadAttention"})) {
    reset_attention(part, draw);
  } else if (is({"Bilinear"})) {
    reset_bilinear(part, draw);
  } else if (is({"PReLU"})) {
    draw.fill(part.take("weight"), 0.25);
  }
}

/// "Conv2d" of "torch.nn.modules.conv.Conv2d"; empty for a class of somebody else, whatever its name.
std::string kind_of(const std::string& python_class) {
  if (!python_class.starts_with("torch.nn.modules.")) return "";
  return python_class.substr(python_class.rfind('.') + 1);
}

void add_own(const torch::nn::Module& module, const std::string& prefix, Part& part) {
  for (const auto& each : module.named_parameters(/*recurse=*/false)) {
    part.own.emplace_back(prefix + each.key(), each.value());
  }
  for (const auto& each : module.named_buffers(/*recurse=*/false)) {
    part.own.emplace_back(prefix + each.key(), each.value());
  }
}

/// In the order of Python's modules(): a module before its children.
void add_parts(const ExportedPart& module, const std::string& path, std::vector<Part>& parts) {
  Part part{.path = path,
            .kind = kind_of(module.python_class()),
            .python_class = module.python_class(),
            .own = {},
            .asked = {},
            .done = {}};
  add_own(module, "", part);
  const bool is_attention = part.kind == "MultiheadAttention";
  const auto children = module.named_children();
  if (is_attention && children.contains("out_proj")) {
    add_own(*children["out_proj"], "out_proj.", part);
  }
  parts.push_back(std::move(part));
  for (const auto& child : children) {
    if (is_attention && child.key() == "out_proj") continue;
    const auto* own = dynamic_cast<const ExportedPart*>(child.value().get());
    if (own == nullptr) continue;
    add_parts(*own, path.empty() ? child.key() : path + "." + child.key(), parts);
  }
}

void ask(const ExportedModule& net, const std::string& pattern, std::vector<Part>& parts) {
  std::set<const c10::TensorImpl*> parameters;
  for (const at::Tensor& each : net.parameters()) parameters.insert(each.unsafeGetTensorImpl());
  bool is_any = false;
  std::vector<std::string> names;
  for (Part& part : parts) {
    for (const auto& [name, tensor] : part.own) {
      const bool is_statistic =
          name == "running_mean" || name == "running_var" || name == "num_batches_tracked";
      if (!parameters.contains(tensor.unsafeGetTensorImpl()) && !is_statistic) continue;
      names.push_back(part.full(name));
      if (!matches(pattern, names.back())) continue;
      is_any = true;
      LEVIN_CHECK(shard::layout_of(tensor) == nullptr, "interchange.init",
                  "'{}' is sharded; call reset_parameters before prepare", names.back());
      part.asked.insert(name);
    }
  }
  const auto near = nearest(pattern, names);
  LEVIN_CHECK(is_any, "interchange.init", "no parameter's name matches '{}'{}", pattern,
              near ? "; the nearest is '" + *near + "'" : "");
}

// torch.nn.Transformer draws all matrices below it again.
void reset_transformers(std::vector<Part>& parts, const Drawing& draw) {
  for (const Part& whole : parts) {
    if (whole.kind != "Transformer") continue;
    for (Part& part : parts) {
      if (!whole.path.empty() && !part.path.starts_with(whole.path + ".")) continue;
      for (const std::string& name : part.asked) {
        if (const at::Tensor tensor = part.find(name); tensor.dim() > 1) draw.xavier(tensor);
      }
    }
  }
}

void check_all_done(const std::vector<Part>& parts) {
  std::vector<std::string> unknown;
  for (const Part& part : parts) {
    for (const std::string& name : part.asked) {
      if (part.done.contains(name)) continue;
      unknown.push_back(fmt::format("{} of {}", part.full(name),
                                    part.python_class.empty()
                                        ? "a module that no operator runs by itself"
                                        : part.python_class));
    }
  }
  LEVIN_CHECK(unknown.empty(), "interchange.init",
              "levin cannot initialize the tensors below; exclude them from the pattern, and "
              "initialize them with torch::nn::init:\n  {}",
              fmt::join(unknown, "\n  "));
}

}  // namespace

void reset_parameters(ExportedModule& net, const std::string& pattern) {
  std::vector<Part> parts;
  add_parts(net, "", parts);
  ask(net, pattern, parts);
  const auto padding_of = [&](const std::string& name) { return net.program_->padding_row(name); };
  for (Part& part : parts) reset(part, Drawing(/*is_real=*/false), padding_of);
  check_all_done(parts);
  const at::NoGradGuard no_grad;
  const Drawing draw(/*is_real=*/true);
  for (Part& part : parts) reset(part, draw, padding_of);
  reset_transformers(parts, draw);
}

}  // namespace levin
