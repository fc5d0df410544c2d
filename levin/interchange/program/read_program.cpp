#include <ATen/core/List.h>

#include <algorithm>
#include <set>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/program/json_value.h"
#include "levin/interchange/program/program.h"
#include "levin/interchange/program/read_operand.h"

namespace levin::interchange {
namespace {

constexpr int64_t kMajor = 8;
/// Deeper ones are no program of a person: each is a `with torch.no_grad()` in another.
constexpr int kDeepestBody = 32;

/// A file of PyTorch, or code that it made ("<eval_with_key>.3").
bool is_pytorchs(const std::string& file) {
  if (file.starts_with('<')) return true;
  for (const char* folder : {"nn/", "_", "utils/", "fx/", "functional", "autograd/"}) {
    if (file.find(std::string("/torch/") + folder) != std::string::npos) return true;
  }
  return false;
}

/// The last line of a stack trace that lies in the module's own code and not in PyTorch's: traces begin
/// with the outermost call.
std::string source_of(const std::string& trace) {
  std::string best;
  size_t at = 0;
  while ((at = trace.find("File \"", at)) != std::string::npos) {
    const size_t path = at + 6, quote = trace.find('"', path), end = trace.find('\n', path);
    if (quote == std::string::npos || end == std::string::npos) break;
    const std::string file = trace.substr(path, quote - path);
    const bool is_own = !is_pytorchs(file);
    // ", line 7, in forward" and, on the next line, the code.
    std::string where = trace.substr(quote + 1, end - quote - 1);
    const size_t code_end = std::min(trace.find('\n', end + 1), trace.size());
    std::string code = trace.substr(end + 1, code_end - end - 1);
    code.erase(0, code.find_first_not_of(' '));
    if (where.starts_with(", line ")) {
      const size_t comma = where.find(',', 7);
      where = ":" + where.substr(7, comma - 7) +
              (comma == std::string::npos ? "" : where.substr(std::min(comma + 1, where.size())));
    }
    if (best.empty() || is_own) best = fmt::format("{}{}: {}", file, where, code);
    at = end;
  }
  return printable(best);
}

class Reader {
 public:
  explicit Reader(Program& program) : program_(program) {}

  void read(const JsonValue& whole) {
    const JsonValue module = whole.field("graph_module");
    const JsonValue graph = module.field("graph");
    names_.emplace_back();
    program_.body = body(graph, 0);
    read_inputs(module.field("signature"), graph);
    read_outputs(module.field("signature"));
    read_modules(module.field("module_call_graph").items("module_call_graph"));
    for (const auto& [symbol, range] :
         whole.field("range_constraints").fields("range_constraints")) {
      Range& own = program_.ranges[symbol];
      if (const auto least = range.find_field("min_val")) {
        own.least = least->integer("min_val");
      }
      if (const auto most = range.find_field("max_val")) own.most = most->integer("max_val");
    }
    if (const auto guards = whole.find_field("guards_code")) {
      for (const JsonValue& guard : guards->items("guards_code")) {
        program_.guards.push_back(guard.text("guards_code"));
      }
    }
    program_.num_slots = num_slots_;
    check_supported();
  }

 private:
  /// Names of a nested body hide those outside.
  Slot define(const std::string& name) {
    const Slot slot = num_slots_++;
    names_.back()[name] = slot;
    return slot;
  }
  Slot use(const std::string& name) const {
    for (auto names = names_.rbegin(); names != names_.rend(); ++names) {
      if (const auto found = names->find(name); found != names->end()) return found->second;
    }
    fail_reading(fmt::format("'{}' is used, but no node made it", name));
  }

  Body body(const JsonValue& graph, int depth) {
    if (depth > kDeepestBody) fail_reading("subgraphs are nested too deeply");
    Body made;
    for (const JsonValue& input : graph.field("inputs").items("inputs")) {
      made.inputs.push_back(define(name_of_value(input)));
    }
    for (const JsonValue& each : graph.field("nodes").items("nodes")) {
      made.nodes.push_back(node(each, depth));
    }
    for (const JsonValue& output : graph.field("outputs").items("outputs")) {
      made.outputs.push_back(operand(output, depth));
    }
    return made;
  }

  /// "x" of {"as_tensor": {"name": "x"}} and {"as_sym_int": {"as_name": "x"}}; a constant that stands
  /// among inputs has a name that nobody uses.
  std::string name_of_value(const JsonValue& argument) {
    const auto [kind, value] = argument.only_field();
    if (const auto name = value.find_field("name")) return name->text("a name");
    if (const auto name = value.find_field("as_name")) return name->text("a name");
    return fmt::format("<constant {}>", num_slots_);
  }

  Operand operand(const JsonValue& argument, int depth) {
    const auto [kind, value] = argument.only_field();
    if (kind == "as_graph") {
      Operand made;
      made.kind = Operand::Kind::kBody;
      names_.emplace_back();
      made.body = std::make_shared<const Body>(body(value.field("graph"), depth + 1));
      names_.pop_back();
      return made;
    }
    return read_operand(
        kind, value, [&](const std::string& name) { return use(name); }, odd_argument_);
  }

  Node node(const JsonValue& each, int depth) {
    Node made;
    made.target = each.field("target").text("target");
    if (const auto name = each.find_field("name")) made.name = name->text("a node's name");
    read_metadata(each.field("metadata"), made);
    odd_argument_.clear();
    for (const JsonValue& input : each.field("inputs").items("a node's inputs")) {
      made.inputs.push_back(
          {input.field("name").text("an input's name"), operand(input.field("arg"), depth)});
    }
    if (!odd_argument_.empty()) refuse(made, "an argument " + odd_argument_);
    for (const JsonValue& output : each.field("outputs").items("a node's outputs")) {
      made.results.push_back(result(output));
    }
    if (made.name.empty() && !made.results.empty()) {
      made.name = name_of_value(each.field("outputs").items("a node's outputs").front());
    }
    return made;
  }

  Result result(const JsonValue& output) {
    const auto [kind, value] = output.only_field();
    Result made;
    if (kind == "as_none") return made;
    made.kind = kind == "as_tensors" || kind == "as_optional_tensors" ? Result::Kind::kList
                                                                      : Result::Kind::kOne;
    if (made.kind == Result::Kind::kOne) {
      made.slots.push_back(define(name_of_value(output)));
      return made;
    }
    for (const JsonValue& item : value.items("a node's outputs")) {
      const auto tensor = item.find_field("as_tensor");
      const auto name = (tensor ? *tensor : item).find_field("name");
      made.slots.push_back(
          define(!name ? fmt::format("<none {}>", num_slots_) : name->text("a name")));
    }
    return made;
  }

  void read_metadata(const JsonValue& metadata, Node& made) {
    if (const auto trace = metadata.find_field("stack_trace")) {
      made.source = source_of(trace->text("stack_trace"));
    }
    const auto stack = metadata.find_field("nn_module_stack");
    if (!stack) return;
    // "L__self__,,net.Net;L__self__conv,conv,torch.nn.modules.conv.Conv2d": key, path, class. Classes
    // and paths of Python have no ';', and keys no ','.
    std::string_view rest = stack->text("nn_module_stack");
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view entry = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const size_t first = entry.find(','), last = entry.rfind(',');
      if (first == std::string_view::npos || last == first) continue;
      made.module_path = entry.substr(first + 1, last - first - 1);
      // A module that is called a second time has "@1" behind its path.
      made.module_path.erase(std::min(made.module_path.find('@'), made.module_path.size()));
      made.module_class = entry.substr(last + 1);
      program_.module_classes.emplace(made.module_path, made.module_class);
    }
  }

  void read_inputs(const JsonValue& signature, const JsonValue& graph) {
    const auto specs = signature.field("input_specs").items("input_specs");
    if (specs.size() != program_.body.inputs.size()) {
      fail_reading("the numbers of input_specs and inputs differ");
    }
    const JsonValue types = graph.field("tensor_values");
    for (size_t i = 0; i < specs.size(); ++i) {
      Input made = input(specs[i], types);
      made.slot = program_.body.inputs[i];
      program_.inputs.push_back(std::move(made));
    }
  }

  static TensorMeta type_of(const JsonValue& spec, const JsonValue& types) {
    return read_tensor_meta(
        types.field(spec.field("arg").field("name").text("a tensor's name").c_str()));
  }

  Input input(const JsonValue& spec, const JsonValue& types) {
    const auto [kind, value] = spec.only_field();
    Input made;
    if (kind == "parameter") {
      made.kind = Input::Kind::kParameter;
      made.name = value.field("parameter_name").text("parameter_name");
      made.type = type_of(value, types);
      made.requires_grad = made.type->requires_grad;
    } else if (kind == "buffer") {
      made.kind = Input::Kind::kBuffer;
      made.name = value.field("buffer_name").text("buffer_name");
      made.type = type_of(value, types);
      made.is_persistent = value.field("persistent").flag("persistent");
    } else if (kind == "tensor_constant") {
      made.kind = Input::Kind::kConstant;
      made.name = value.field("tensor_constant_name").text("tensor_constant_name");
      made.type = type_of(value, types);
      made.is_persistent = false;
    } else if (kind == "constant_input") {
      made.name = value.field("name").text("a constant's name");
      std::string unsupported;
      const auto [type, constant] = value.field("value").only_field();
      made.constant = read_operand(
                          type, constant, [](const std::string&) { return Slot(0); }, unsupported)
                          .constant;
    } else if (kind == "user_input") {
      const JsonValue argument = value.field("arg");
      made.name = name_of_value(argument);
      if (argument.find_field("as_tensor")) {
        made.type = read_tensor_meta(types.field(made.name.c_str()));
      } else if (argument.find_field("as_custom_obj")) {
        unsupported_.insert(fmt::format("the input {} is a custom object", made.name));
      }
    } else {
      unsupported_.insert(fmt::format("an input of kind {}", printable(kind)));
    }
    return made;
  }

  void read_outputs(const JsonValue& signature) {
    const auto specs = signature.field("output_specs").items("output_specs");
    if (specs.size() != program_.body.outputs.size()) {
      fail_reading("the numbers of output_specs and outputs differ");
    }
    const std::map<std::string_view, std::pair<Output::Kind, const char*>> kinds = {
        {"buffer_mutation", {Output::Kind::kBufferMutation, "buffer_name"}},
        {"parameter_mutation", {Output::Kind::kParameterMutation, "parameter_name"}},
        {"user_input_mutation", {Output::Kind::kInputMutation, "user_input_name"}},
    };
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto [kind, value] = specs[i].only_field();
      Output made;
      made.operand = program_.body.outputs[i];
      if (const auto known = kinds.find(kind); known != kinds.end()) {
        made.kind = known->second.first;
        made.name = value.field(known->second.second).text(known->second.second);
      } else if (kind != "user_output" && kind != "loss_output") {
        unsupported_.insert(
            fmt::format("an output of kind {}: export the forward pass alone", printable(kind)));
      }
      program_.outputs.push_back(std::move(made));
    }
  }

  void read_modules(const std::vector<JsonValue>& calls) {
    for (const JsonValue& call : calls) {
      std::string path = call.field("fqn").text("fqn");
      path.erase(std::min(path.find('@'), path.size()));
      program_.modules.push_back(path);
      const auto signature = call.find_field("signature");
      if (!path.empty() || !signature) continue;
      program_.input_tree = PyTree::parse(signature->field("in_spec").text("in_spec"));
      program_.output_tree = PyTree::parse(signature->field("out_spec").text("out_spec"));
      if (const auto names = signature->find_field("forward_arg_names")) {
        for (const JsonValue& name : names->items("forward_arg_names")) {
          program_.argument_names.push_back(name.text("forward_arg_names"));
        }
      }
    }
    const auto& parts = program_.input_tree.children();
    if (parts.size() != 2 || program_.input_tree.is_leaf()) {
      fail_reading("the inputs are not a tuple of args and kwargs");
    }
  }

  void refuse(const Node& node, std::string_view what) {
    unsupported_.insert(fmt::format("{} of {}{}", what, node.target,
                                    node.source.empty() ? "" : " at " + node.source));
  }

  void check_supported() const {
    if (unsupported_.empty()) return;
    std::string list;
    for (const std::string& each : unsupported_) list += "\n  " + each;
    LEVIN_FAIL("interchange.unsupported", "levin cannot run this program, because it has:{}", list);
  }

  Program& program_;
  std::vector<std::map<std::string, Slot, std::less<>>> names_;
  Slot num_slots_ = 0;
  std::string odd_argument_;  ///< the kind of the last one that levin has no form for
  std::set<std::string> unsupported_;
};

void check_version(const JsonValue& whole) {
  const JsonValue version = whole.field("schema_version");
  const int64_t major = version.field("major").integer("schema_version.major");
  LEVIN_CHECK(major == kMajor, "interchange.archive",
              "the program has version {}.{} of torch.export's schema, wanted {}; export it with "
              "PyTorch 2.6 to 2.15",
              major, version.field("minor").integer("schema_version.minor"), kMajor);
}

}  // namespace

const Operand* find_input(const Node& node, std::string_view name) {
  const auto found = std::ranges::find(node.inputs, name, &NamedOperand::name);
  return found == node.inputs.end() ? nullptr : &found->operand;
}

Program read_program(std::string_view text) {
  const JsonDocument document(text, "models/model.json");
  check_version(document.top());
  Program program;
  Reader(program).read(document.top());
  return program;
}

}  // namespace levin::interchange
