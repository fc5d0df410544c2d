#include "levin/observe/loggers/summaries.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <protozero/pbf_writer.hpp>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <utility>

#include "levin/base/options.h"
#include "levin/observe/loggers/pictures.h"
#include "levin/observe/run_directory_impl.h"

namespace levin::detail {
namespace {

using protozero::pbf_writer;

// Field numbers of tensorflow's summary.proto, histogram.proto, graph.proto, node_def.proto and
// attr_value.proto, and of tensorboard's plugins/hparams/*.proto.
constexpr uint32_t kTag = 1, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
constexpr uint32_t kPlugin = 1, kPluginName = 1, kPluginContent = 2;
constexpr int32_t kDtFloat = 1, kDtString = 7;

std::string value_with(std::string_view tag, uint32_t field, const std::string& message) {
  std::string value;
  pbf_writer writer(value);
  writer.add_string(kTag, tag.data(), tag.size());
  writer.add_message(field, message);
  return value;
}

std::string metadata_of(std::string_view plugin_name, const std::string& content) {
  std::string plugin, metadata;
  pbf_writer writer(plugin);
  writer.add_string(kPluginName, plugin_name.data(), plugin_name.size());
  if (!content.empty()) writer.add_bytes(kPluginContent, content);
  pbf_writer(metadata).add_message(kPlugin, plugin);
  return metadata;
}

/// A value of the plugin hparams, whose content is one field of HParamsPluginData.
std::string hparams_value(std::string_view tag, uint32_t field, const std::string& message) {
  std::string content;
  pbf_writer(content).add_message(field, message);
  return value_with(tag, kMetadata, metadata_of("hparams", content));
}

/// Right ends of TensorBoard's default buckets, from -1e20 to 1e20, each 1.1 times the one before.
std::vector<double> default_limits() {
  std::vector<double> limits = {1e-12};
  while (limits.back() * 1.1 < 1e20) limits.push_back(limits.back() * 1.1);
  std::vector<double> all;
  for (auto limit = limits.rbegin(); limit != limits.rend(); ++limit) all.push_back(-*limit);
  all.push_back(0);
  all.insert(all.end(), limits.begin(), limits.end());
  return all;
}

/// google.protobuf.Value, and HParamInfo.type.
std::pair<std::string, int32_t> protobuf_value(const std::string& text) {
  constexpr int32_t kString = 1, kBool = 2, kFloat64 = 3;
  std::string value;
  pbf_writer writer(value);
  switch (kind_of_text(text)) {
    case TextKind::kBool:
      writer.add_bool(4, text == "true");
      return {value, kBool};
    case TextKind::kNumber: {
      double number = 0;
      from_text(text, number);
      writer.add_double(2, number);
      return {value, kFloat64};
    }
    case TextKind::kText:
      break;
  }
  writer.add_string(3, text);
  return {value, kString};
}

void add_attribute(pbf_writer& node, std::string_view key, const std::string& value) {
  std::string entry;
  pbf_writer writer(entry);
  writer.add_string(1, key.data(), key.size());
  writer.add_message(2, value);
  node.add_message(5, entry);
}

class GraphDef {
 public:
  /// Returns the last node of the module, whose output the next one takes.
  std::string add(const torch::nn::Module& module, const std::string& path, std::string input) {
    std::vector<std::string> inputs;
    if (!input.empty()) inputs.push_back(input);
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      if (!parameter.value().defined()) continue;
      inputs.push_back(below(path, parameter.key()));
      add_node(inputs.back(), "Parameter", {}, &parameter.value());
    }
    const auto children = module.named_children();
    if (children.is_empty()) {
      const std::string name = below(path, kind(module));
      add_node(name, kind(module), inputs, nullptr);
      return name;
    }
    const bool in_order = dynamic_cast<const torch::nn::SequentialImpl*>(&module) != nullptr;
    for (const auto& child : children) {
      std::string last = add(*child.value(), below(path, child.key()), in_order ? input : "");
      if (in_order) input = std::move(last);
    }
    return in_order ? input : "";
  }
  std::string finish() {
    constexpr int32_t kProducer = 22;  // the version that torch.utils.tensorboard writes
    std::string versions;
    pbf_writer(versions).add_int32(1, kProducer);
    pbf_writer(graph_).add_message(4, versions);
    return std::move(graph_);
  }

 private:
  static std::string below(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "/" + name;
  }
  /// "Linear" of "torch::nn::LinearImpl".
  static std::string kind(const torch::nn::Module& module) {
    std::string name = module.name();
    if (const size_t at = name.rfind("::"); at != std::string::npos) name.erase(0, at + 2);
    if (name.ends_with("Impl")) name.resize(name.size() - 4);
    // TensorBoard's names of nodes have none of the other characters.
    std::ranges::replace_if(name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
  }
  void add_node(const std::string& name, const std::string& op,
                const std::vector<std::string>& inputs, const at::Tensor* tensor) {
    std::string node;
    pbf_writer writer(node);
    writer.add_string(1, name);
    writer.add_string(2, op);
    for (const std::string& input : inputs) writer.add_string(3, input);
    if (tensor != nullptr) {
      std::string shape, shapes, list, type;
      for (const int64_t size : tensor->sizes()) {
        std::string dim;
        pbf_writer(dim).add_int64(1, size);
        pbf_writer(shape).add_message(2, dim);
      }
      pbf_writer(shapes).add_message(7, shape);
      pbf_writer(list).add_message(1, shapes);
      add_attribute(writer, "_output_shapes", list);
      pbf_writer(type).add_enum(6, kDtFloat);
      if (tensor->scalar_type() == at::kFloat) add_attribute(writer, "dtype", type);
    }
    pbf_writer(graph_).add_message(1, node);
  }

  std::string graph_;
};

}  // namespace

std::string image_summary(std::string_view tag, const at::Tensor& pixels) {
  std::string image;
  pbf_writer writer(image);
  writer.add_int32(1, static_cast<int32_t>(pixels.size(0)));
  writer.add_int32(2, static_cast<int32_t>(pixels.size(1)));
  writer.add_int32(3, static_cast<int32_t>(pixels.size(2)));
  writer.add_bytes(4, png_of_pixels(pixels));
  return value_with(tag, kImage, image);
}

// make_histogram() of torch.utils.tensorboard: numpy's histogram over the default buckets, of which
// those from before the first to the last that counts remain.
std::string histogram_summary(std::string_view tag, const at::Tensor& values) {
  const std::vector<double> limits = default_limits();
  std::vector<double> counts(limits.size() - 1);
  const double* const numbers = values.const_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    if (numbers[i] < limits.front() || numbers[i] > limits.back()) continue;
    const auto above = std::upper_bound(limits.begin(), limits.end(), numbers[i]);
    // numpy's last bucket has its right end too.
    const auto bucket = std::min<int64_t>(above - limits.begin(), std::ssize(limits) - 1) - 1;
    ++counts[static_cast<size_t>(bucket)];
  }
  const auto counts_any = [](double count) { return count > 0; };
  const auto first = std::ranges::find_if(counts, counts_any);
  size_t start = 0, end = counts.size();  // nothing counts: every number is beyond the buckets
  if (first != counts.end()) {
    start = static_cast<size_t>(first - counts.begin());
    while (end > start && counts[end - 1] == 0) --end;
  }
  std::vector<double> kept_counts(counts.begin() + static_cast<int64_t>(start),
                                  counts.begin() + static_cast<int64_t>(end));
  kept_counts.insert(kept_counts.begin(), start > 0 ? counts[start - 1] : 0);
  std::string histogram;
  pbf_writer writer(histogram);
  writer.add_double(1, values.min().item<double>());
  writer.add_double(2, values.max().item<double>());
  writer.add_double(3, static_cast<double>(values.numel()));
  writer.add_double(4, values.sum().item<double>());
  writer.add_double(5, values.dot(values).item<double>());
  writer.add_packed_double(6, limits.begin() + static_cast<int64_t>(start),
                           limits.begin() + static_cast<int64_t>(end + 1));
  writer.add_packed_double(7, kept_counts.begin(), kept_counts.end());
  return value_with(tag, kHistogram, histogram);
}

std::string text_summary(std::string_view tag, std::string_view text) {
  std::string dim, shape, tensor;
  pbf_writer(dim).add_int64(1, 1);
  pbf_writer(shape).add_message(2, dim);
  pbf_writer writer(tensor);
  writer.add_enum(1, kDtString);
  writer.add_message(2, shape);
  writer.add_bytes(8, text.data(), text.size());
  std::string value = value_with(std::string(tag) + "/text_summary", kTensor, tensor);
  pbf_writer(value).add_message(kMetadata, metadata_of("text", ""));
  return value;
}

std::string experiment_summary(const std::map<std::string, std::string>& hyperparams,
                               const std::vector<std::string>& metrics) {
  std::string experiment;
  pbf_writer writer(experiment);
  for (const auto& [name, text] : hyperparams) {
    std::string info;
    pbf_writer fields(info);
    fields.add_string(1, name);
    fields.add_enum(4, protobuf_value(text).second);
    writer.add_message(4, info);
  }
  for (const std::string& metric : metrics) {
    std::string name, info;
    pbf_writer(name).add_string(2, metric);
    pbf_writer(info).add_message(1, name);
    writer.add_message(5, info);
  }
  return hparams_value("_hparams_/experiment", 2, experiment);
}

std::string session_start_summary(const std::map<std::string, std::string>& hyperparams) {
  std::string session;
  for (const auto& [name, text] : hyperparams) {
    std::string entry;
    pbf_writer fields(entry);
    fields.add_string(1, name);
    fields.add_message(2, protobuf_value(text).first);
    pbf_writer(session).add_message(1, entry);
  }
  return hparams_value("_hparams_/session_start_info", 3, session);
}

std::string session_end_summary(bool succeeded) {
  std::string session;
  pbf_writer(session).add_enum(1, succeeded ? 1 : 2);
  return hparams_value("_hparams_/session_end_info", 4, session);
}

std::string graph_of(const torch::nn::Module& module) {
  GraphDef graph;
  static_cast<void>(graph.add(module, "", ""));
  return graph.finish();
}

}  // namespace levin::detail
