#pragma once
// Archives of torch.export, written by hand: what Python writes for networks of a few lines, and what it never would.

#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace levin::test {

using nlohmann::json;

/// {"as_tensor": {"name": "x"}}
inline json tensor_named(const std::string& name) { return {{"as_tensor", {{"name", name}}}}; }
inline json symbol_named(const std::string& name) {
  return {{"as_expr", {{"expr_str", "Symbol('" + name + "', positive=True, integer=True)"}}}};
}

/// A size of -1 is the symbol s0.
inline json meta_of(const std::vector<int64_t>& sizes, bool requires_grad = false, int dtype = 7) {
  json meta = {{"dtype", dtype},
               {"sizes", json::array()},
               {"strides", json::array()},
               {"requires_grad", requires_grad},
               {"device", {{"type", "cpu"}, {"index", nullptr}}},
               {"storage_offset", {{"as_int", 0}}},
               {"layout", 7}};
  int64_t stride = 1;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    meta["strides"].insert(meta["strides"].begin(), json{{"as_int", stride}});
    stride *= *size < 0 ? 1 : *size;
  }
  for (const int64_t size : sizes) {
    meta["sizes"].push_back(size < 0 ? symbol_named("s0") : json{{"as_int", size}});
  }
  return meta;
}

inline json leaf_tree() {
  return {{"type", nullptr}, {"context", nullptr}, {"children_spec", json::array()}};
}
inline json tuple_tree(size_t count) {
  return {
      {"type", "builtins.tuple"}, {"context", "null"}, {"children_spec", json(count, leaf_tree())}};
}

/// A program and its tensors, to which parts are added in the order of Python's signature.
struct SmallProgram {
  json graph = {{"inputs", json::array()},          {"outputs", json::array()},
                {"nodes", json::array()},           {"tensor_values", json::object()},
                {"sym_int_values", json::object()}, {"sym_bool_values", json::object()}};
  json input_specs = json::array(), output_specs = json::array(), modules = json::array();
  json input_trees = json::array();
  json named_input_keys = json::array();
  json argument_names = json::array();
  json output_tree = tuple_tree(1);
  json ranges = json::object();
  json version = {{"major", 8}, {"minor", 20}};
  std::vector<std::pair<std::string, at::Tensor>> weights;
  std::map<std::string, std::string> classes;  ///< of modules, where they are not torch.nn.Part
  json weights_config = json::object();
  std::vector<std::pair<std::string, at::Tensor>> constants;
  json constants_config = json::object();

  void tensor(const std::string& kind, const std::string& name, const at::Tensor& value,
              bool persistent = true) {
    const std::string slot = kind.substr(0, 1) + "_" + name;
    graph["inputs"].push_back(tensor_named(slot));
    graph["tensor_values"][slot] = meta_of(value.sizes().vec(), kind == "parameter");
    json spec = {{"arg", {{"name", slot}}}, {kind + "_name", name}};
    if (kind == "buffer") spec["persistent"] = persistent;
    input_specs.push_back({{kind, spec}});
    const bool is_weight = kind != "tensor_constant" && persistent;
    auto& values = is_weight ? weights : constants;
    (is_weight ? weights_config : constants_config)[name] = {
        {"path_name", (is_weight ? "weight_" : "tensor_") + std::to_string(values.size())},
        {"is_param", kind == "parameter"},
        {"use_pickle", false},
        {"tensor_meta", meta_of(value.sizes().vec(), kind == "parameter")}};
    values.emplace_back(name, value);
  }
  void parameter(const std::string& name, const at::Tensor& value) {
    tensor("parameter", name, value);
  }
  void buffer(const std::string& name, const at::Tensor& value) { tensor("buffer", name, value); }
  /// A buffer that is not in the state dict.
  void passing_buffer(const std::string& name, const at::Tensor& value) {
    tensor("buffer", name, value, /*persistent=*/false);
  }
  /// A tensor that forward found elsewhere than in a parameter or buffer.
  void constant(const std::string& name, const at::Tensor& value) {
    tensor("tensor_constant", name, value);
  }

  void input(const std::string& name, const json& meta) {
    graph["inputs"].push_back(tensor_named(name));
    graph["tensor_values"][name] = meta;
    input_specs.push_back({{"user_input", {{"arg", tensor_named(name)}}}});
    input_trees.push_back(leaf_tree());
    argument_names.push_back(name);
  }
  void constant_input(const std::string& name, const json& value) {
    graph["inputs"].push_back(value);
    input_specs.push_back({{"constant_input", {{"name", name}, {"value", value}}}});
    input_trees.push_back(leaf_tree());
    argument_names.push_back(name);
  }

  /// inputs: names of the schema and arguments. result: the name of the one tensor that it gives.
  void node(const std::string& target, const std::vector<std::pair<std::string, json>>& inputs,
            const std::string& result, const std::string& module = "",
            const std::string& line = "") {
    json written = json::array();
    for (const auto& [name, argument] : inputs) {
      written.push_back({{"name", name}, {"arg", argument}, {"kind", 1}});
    }
    json metadata = json::object();
    if (!module.empty())
      metadata["nn_module_stack"] =
          "L__self__,,net.Net;L__self__" + module + "," + module + "," +
          (classes.contains(module) ? classes.at(module) : "torch.nn.Part");
    if (!line.empty()) metadata["stack_trace"] = line;
    graph["nodes"].push_back({{"target", target},
                              {"inputs", written},
                              {"outputs", json::array({tensor_named(result)})},
                              {"metadata", metadata},
                              {"name", result}});
  }
  void output(const std::string& name) {
    graph["outputs"].push_back(tensor_named(name));
    output_specs.push_back({{"user_output", {{"arg", tensor_named(name)}}}});
  }
  void module(const std::string& path) {
    modules.push_back({{"fqn", path}, {"signature", nullptr}});
  }

  json text() const {
    json places = tuple_tree(0), names = {{"type", "builtins.dict"},
                                          {"context", named_input_keys.dump()},
                                          {"children_spec", json::array()}};
    const size_t num_places = input_trees.size() - named_input_keys.size();
    for (size_t i = 0; i < input_trees.size(); ++i) {
      (i < num_places ? places : names)["children_spec"].push_back(input_trees[i]);
    }
    json inputs = tuple_tree(0);
    inputs["children_spec"] = {places, names};
    json calls = json::array({{{"fqn", ""},
                               {"signature",
                                {{"inputs", json::array()},
                                 {"outputs", json::array()},
                                 {"in_spec", json({1, inputs}).dump()},
                                 {"out_spec", json({1, output_tree}).dump()},
                                 {"forward_arg_names", argument_names}}}}});
    for (const json& each : modules) calls.push_back(each);
    return {{"graph_module",
             {{"graph", graph},
              {"signature", {{"input_specs", input_specs}, {"output_specs", output_specs}}},
              {"module_call_graph", calls},
              {"metadata", json::object()}}},
            {"opset_version", {{"aten", 10}}},
            {"range_constraints", ranges},
            {"schema_version", version},
            {"torch_version", "2.13.0"}};
  }

  void write(const std::filesystem::path& path) const { write(path, text().dump()); }
  void write(const std::filesystem::path& path, const std::string& program) const {
    caffe2::serialize::PyTorchStreamWriter writer(path.string());
    const auto put = [&](const std::string& name, const void* data, size_t size) {
      writer.writeRecord(name, data, size);
    };
    const auto put_text = [&](const std::string& name, const std::string& content) {
      put(name, content.data(), content.size());
    };
    put_text("archive_format", "pt2");
    put_text("byteorder", "little");
    put_text("models/model.json", program);
    const auto put_tensors = [&](const std::string& start, const auto& tensors) {
      size_t number = 0;
      for (const auto& [name, tensor] : tensors) {
        const at::Tensor plain = tensor.contiguous();
        put(start + std::to_string(number++), plain.const_data_ptr(), plain.nbytes());
      }
    };
    put_tensors("data/weights/weight_", weights);
    put_text("data/weights/model_weights_config.json", json({{"config", weights_config}}).dump());
    put_tensors("data/constants/tensor_", constants);
    put_text("data/constants/model_constants_config.json",
             json({{"config", constants_config}}).dump());
    writer.writeEndOfFile();
  }
};

/// y = linear(x), and relu(y) where asked for; the rows of x are dynamic.
inline SmallProgram small_linear(const at::Tensor& weight, const at::Tensor& bias) {
  SmallProgram program;
  program.module("lin");
  program.parameter("lin.weight", weight);
  program.parameter("lin.bias", bias);
  program.input("x", meta_of({-1, weight.size(1)}));
  program.node("torch.ops.aten.linear.default",
               {{"input", tensor_named("x")},
                {"weight", tensor_named("p_lin.weight")},
                {"bias", tensor_named("p_lin.bias")}},
               "y", "lin", "File \"net.py\", line 7, in forward\n    return self.lin(x)");
  program.output("y");
  program.ranges["s0"] = {{"min_val", 2}, {"max_val", 8}};
  return program;
}

}  // namespace levin::test
