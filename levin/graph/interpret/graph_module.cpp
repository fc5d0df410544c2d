#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/files/atomic.h"
#include "levin/files/safetensors.h"
#include "levin/files/safetensors_dtype.h"
#include "levin/graph/graph.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

constexpr const char* kGraphEntry = "levin.graph";

std::string file_type(const NamedTensor& state) {
  const auto name = files::safetensors_dtype(state.tensor.scalar_type());
  LEVIN_CHECK(name.has_value(), "graph.save",
              "{} has dtype {}, which safetensors cannot store; save without state", state.name,
              c10::toString(state.tensor.scalar_type()));
  return std::string(*name);
}

/// Laid out in memory as the graph has it.
at::Tensor tensor_of(const files::TensorEntry& entry, const ValueType& type,
                     const std::string& file) {
  const bool fits = std::ranges::equal(entry.shape, type.sizes) &&
                    files::dtype_of_safetensors(entry.dtype) == type.dtype;
  LEVIN_CHECK(fits, "graph.load", "{} holds {} as {}{}, wanted {} as its graph has it", file,
              entry.name, entry.dtype, c10::str(at::IntArrayRef(entry.shape)), text_of(type));
  at::Tensor tensor = at::empty_strided(type.sizes, type.strides, at::TensorOptions(type.dtype));
  if (entry.data.empty()) return tensor;
  std::vector<std::byte> aligned(entry.data.begin(), entry.data.end());
  tensor.copy_(at::from_blob(aligned.data(), entry.shape, at::TensorOptions(type.dtype)));
  return tensor.to(type.device);
}

}  // namespace

std::vector<at::Tensor> GraphModule::operator()(const std::vector<at::Tensor>& inputs) {
  return interpret(graph_, inputs, {.donate = true}).outputs;
}

std::vector<NamedTensor> GraphModule::state() const {
  std::vector<NamedTensor> state;
  for (const Node* node : graph_.find_nodes(Opcode::kGetAttr)) {
    state.push_back({node->name(), node->tensor()});
  }
  return state;
}

void GraphModule::bind(const std::string& name, const at::Tensor& tensor) {
  for (Node* node : graph_.find_nodes(Opcode::kGetAttr)) {
    if (node->name() == name) return node->bind(tensor);
  }
  LEVIN_FAIL("graph.state", "got {}, wanted the name of one of the graph's {} state tensors", name,
             state().size());
}

void GraphModule::save(const std::filesystem::path& path, SaveOptions options) const {
  const std::string text = to_text(graph_);
  // Names and strings are in quotes; a constant without a text is not.
  for (size_t at = 0, in_quotes = 0; at < text.size(); ++at) {
    if (text[at] == '"' && text[at - 1] != '\\') in_quotes ^= 1U;
    if (text[at] == '#' && in_quotes == 0) at = text.find('\n', at);
    LEVIN_CHECK(
        text[at] != '<' || in_quotes != 0, "graph.save",
        "got an argument {} that the text format cannot hold; take its operator out of the graph: "
        "{}",
        text.substr(at, text.find('>', at) + 1 - at),
        text.substr(text.rfind('\n', at) + 1, text.find('\n', at) - text.rfind('\n', at) - 1));
  }
  std::vector<at::Tensor> kept;
  std::vector<files::TensorEntry> entries;
  for (const NamedTensor& state : options.state ? this->state() : std::vector<NamedTensor>()) {
    kept.push_back(state.tensor.detach().cpu().resolve_conj().resolve_neg().contiguous());
    const at::Tensor& bytes = kept.back();
    entries.push_back({.name = state.name,
                       .dtype = file_type(state),
                       .shape = bytes.sizes().vec(),
                       .data = {static_cast<const std::byte*>(bytes.const_data_ptr()),
                                static_cast<size_t>(bytes.nbytes())}});
  }
  files::StagedFile staged(path);
  files::write_safetensors(staged.path(), entries, {{"format", "pt"}, {kGraphEntry, text}});
  staged.commit();
}

namespace {

GraphModule load_file(const std::filesystem::path& path) {
  const files::SafetensorsFile file(path);
  const auto text = file.metadata().find(kGraphEntry);
  LEVIN_CHECK(text != file.metadata().end(), "graph.load",
              "{} has no entry {} in its metadata, wanted a file that GraphModule::save wrote",
              path.string(), kGraphEntry);
  Graph graph = parse(text->second);
  const std::vector<Node*> states = graph.find_nodes(Opcode::kGetAttr);
  for (Node* node : states) {
    const files::TensorEntry* entry = file.find(node->name());
    LEVIN_CHECK(entry != nullptr || file.entries().empty(), "graph.load",
                "{} lacks {}, a state tensor of its graph", path.string(), node->name());
    if (entry != nullptr) node->bind(tensor_of(*entry, node->output().type(), path.string()));
  }
  return GraphModule(std::move(graph));
}

}  // namespace

GraphModule GraphModule::load(const std::filesystem::path& path) {
  try {
    return load_file(path);
  } catch (const c10::Error& error) {
    LEVIN_FAIL("graph.load", "{}: {}", path.string(), printable(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    LEVIN_FAIL("graph.load", "{}: there is not enough memory for its tensors", path.string());
  }
}

}  // namespace levin::graph
