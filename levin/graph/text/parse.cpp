// The reader of what text.cpp writes.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <charconv>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/optional_type.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/text/text_line_impl.h"

namespace levin::graph {

void Line::fail(std::string_view wanted) const {
  LEVIN_FAIL("graph.parse", "line {}, at '{}': wanted {}; the line is '{}'", number_,
             printable(rest_.substr(0, 20)), printable(wanted), printable(text_.substr(0, 500)));
}

namespace {

constexpr int64_t kMostElements = int64_t{1} << 58;  // so that bytes can be counted too

template <class Number>
std::optional<Number> number_of(std::string_view word) {
  Number number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

class Parser {
 public:
  Graph parse(std::string_view text) {
    for (int64_t number = 1; !text.empty(); ++number) {
      const size_t end = text.find('\n');
      Line line(text.substr(0, end), number);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      if (!line.at_end()) statement(line);
    }
    LEVIN_CHECK(has_return_, "graph.parse",
                "the text ends without a line 'return ...'; it is truncated");
    graph_.set_updates(updates_);
    graph_.set_claimed_types(true);
    return std::move(graph_);
  }

 private:
  void statement(Line& line) {
    if (line.accept("return")) return outputs(line);
    if (line.accept("update ")) return update(line, false);
    if (line.accept("gradient ")) return update(line, true);
    if (has_return_) line.fail("an update or nothing after 'return'");
    std::vector<std::string> names;
    while (line.accept("%")) {
      names.emplace_back(line.word("a name"));
      line.accept(",");
    }
    if (!names.empty()) line.expect("=");
    const std::string target(line.word("an operator"));
    const Node& node = made(line, target, names.size());
    if (node.outputs().size() != names.size()) {
      line.fail(fmt::format("{} names of results", node.outputs().size()));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      line.expect(i == 0 ? ":" : ",");
      node.output(i).set_type(type(line));
      if (!values_.emplace(names[i], &node.output(i)).second)
        line.fail("another name than " + names[i]);
    }
    if (!line.at_end() && !line.accept("#")) line.fail("the end of the line");
  }

  const Node& made(Line& line, const std::string& target, size_t num_outputs) {
    if (target == "random_state") return graph_.random_state().node();
    if (target != "placeholder" && target != "get_attr") return call(line, target, num_outputs);
    line.expect("[");
    std::string name = line.string();
    line.expect("]");
    Value& value = target == "get_attr" ? graph_.get_attr(std::move(name), {})
                                        : graph_.placeholder(std::move(name), {});
    return value.node();
  }

  const Node& call(Line& line, const std::string& target, size_t num_outputs) {
    const size_t dot = target.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {target.substr(0, dot), dot == std::string::npos ? "" : target.substr(dot + 1)});
    if (!op) line.fail("an operator that this program has");
    if (const std::string_view reason = reason_to_refuse(target); !reason.empty()) {
      line.fail(fmt::format("no operator that {}, as {} does,", reason, target));
    }
    const OperatorInfo info(*op);
    std::vector<Argument> positional;
    std::map<std::string, Argument> named;
    line.expect("(");
    while (!line.accept(")")) {
      if (!positional.empty() || !named.empty()) line.expect(",");
      Line ahead = line;
      ahead.skip_spaces();
      const bool is_named = !ahead.sees("\"") && !ahead.sees("[") && !ahead.sees("%") &&
                            !ahead.word("an argument").empty() && ahead.accept("=");
      if (!is_named) {
        if (positional.size() >= info.num_parameters()) line.fail("')'");
        positional.push_back(argument(line, info.parameters()[positional.size()]));
        continue;
      }
      named_argument(line, info, named);
    }
    size_t num_results = num_outputs - std::min<size_t>(num_outputs, info.is_random ? 1 : 0);
    for (const auto& result : info.op.schema().returns()) {
      const bool is_single = !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
      if (is_single && num_results > 1) --num_results;
    }
    return graph_.call_function(target, std::move(positional), named, num_results);
  }

  void named_argument(Line& line, const OperatorInfo& info,
                      std::map<std::string, Argument>& named) {
    const std::string name(line.word("a name"));
    line.expect("=");
    if (name == "rng" && info.is_random) {
      line.expect("%");
      if (value(line) != &graph_.random_state()) line.fail("the newest random state before");
      return;
    }
    const auto& parameters = info.parameters();
    const auto parameter = std::ranges::find(parameters, name, &c10::Argument::name);
    if (parameter == parameters.end()) line.fail(fmt::format("an argument of {}", info.name));
    if (!named.emplace(name, argument(line, *parameter)).second) line.fail("each argument once");
  }

  Argument argument(Line& line, const c10::Argument& parameter) {
    if (line.accept("%")) return *value(line);
    const c10::TypePtr real = without_optional(parameter.real_type());
    if (!line.accept("[")) {
      c10::IValue value = constant(line, *real);
      // The same result from indices that are right, and an error from others.
      if (is_unchecked_flag(parameter.name()) && value.isBool()) value = false;
      return Argument(value);
    }
    const auto list = without_optional(parameter.type())->cast<c10::ListType>();
    if (list == nullptr) line.fail("no list");
    const c10::TypePtr element = list->getElementType();
    if (element->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      return values(line, [&] { return line.accept("]"); });
    }
    c10::impl::GenericList elements(element);
    while (!line.accept("]")) {
      if (!elements.empty()) line.expect(",");
      elements.push_back(constant(line, *element));
    }
    return Argument(c10::IValue(elements));
  }

  /// "%x, none, %y" until there is an end.
  template <class IsEnd>
  Values values(Line& line, const IsEnd& is_end) {
    Values found;
    while (!is_end()) {
      if (!found.empty()) line.expect(",");
      if (line.accept("none")) {
        found.push_back(nullptr);
      } else {
        line.expect("%");
        found.push_back(value(line));
      }
    }
    return found;
  }

  static c10::IValue constant(Line& line, const c10::Type& type) {
    if (line.sees("\"")) {
      // If this process has no such group, the graph can be printed but not run.
      std::string word = line.string();
      if (type.kind() != c10::TypeKind::ClassType) return word;
      return comm::NamedGroup::called(word);
    }
    const std::string_view word = line.word("a constant");
    if (word == "none") return {};
    if (word == "true" || word == "false") return word == "true";
    if (const auto number = number_of<int64_t>(word)) return *number;
    if (const auto number = number_of<double>(word)) return *number;
    if (word == "complex") return complex(line);
    if (type.kind() == c10::TypeKind::DeviceObjType) return c10::Device(std::string(word));
    std::optional<int64_t> found;
    if (const auto dtype = dtype_named(word)) found = static_cast<int64_t>(*dtype);
    if (const auto format = memory_format_named(word)) found = static_cast<int64_t>(*format);
    if (const auto layout = layout_named(word)) found = static_cast<int64_t>(*layout);
    if (!found) line.fail("a constant that text can hold, before");
    return *found;
  }

  static c10::IValue complex(Line& line) {
    line.expect("(");
    const auto real = number_of<double>(line.word("a number"));
    line.expect(",");
    const auto imaginary = number_of<double>(line.word("a number"));
    line.expect(")");
    if (!real || !imaginary) line.fail("two numbers");
    return c10::complex<double>(*real, *imaginary);
  }

  static ValueType type(Line& line) {
    const std::string_view word = line.word("a type");
    if (word == "none") return {.kind = ValueKind::kUndefined};
    if (word == "host") return {.kind = ValueKind::kHost};
    if (word == "random") return {.kind = ValueKind::kRandom};
    if (word == "tensor") return {};
    const auto dtype = dtype_named(word);
    if (!dtype) line.fail("a type before");
    ValueType type{.dtype = *dtype};
    line.expect("[");
    type.sizes = numbers(line, "]");
    check_extent(line, type.sizes, at::DimVector(type.sizes.size(), 0));
    type.strides = line.accept("{") ? numbers(line, "}") : packed_strides(type.sizes);
    check_extent(line, type.sizes, type.strides);
    if (line.accept("@")) type.device = c10::Device(std::string(line.word("a device")));
    return type;
  }

  /// Checks that the elements, and the memory between the first and the last, can be counted.
  static void check_extent(Line& line, const at::DimVector& sizes, const at::DimVector& strides) {
    int64_t count = 1, last = 0;
    bool fits = strides.size() == sizes.size();
    for (size_t i = 0; fits && i < sizes.size(); ++i) {
      int64_t reach = 0;
      fits = !__builtin_mul_overflow(count, std::max<int64_t>(sizes[i], 1), &count) &&
             !__builtin_mul_overflow(sizes[i], strides[i], &reach) &&
             !__builtin_add_overflow(last, reach, &last) && count < kMostElements &&
             last < kMostElements;
    }
    if (!fits) line.fail("the sizes of a tensor that can exist, and one stride for each, before");
  }

  static at::DimVector numbers(Line& line, std::string_view close) {
    at::DimVector found;
    while (!line.accept(close)) {
      if (!found.empty()) line.expect(",");
      const auto number = number_of<int64_t>(line.word("a number"));
      if (!number || *number < 0) line.fail("a number before");
      found.push_back(*number);
    }
    return found;
  }

  Value* value(Line& line) {
    const std::string name(line.word("a name"));
    const auto found = values_.find(name);
    if (found == values_.end()) line.fail(fmt::format("a value made above, not %{},", name));
    return found->second;
  }

  void outputs(Line& line) {
    has_return_ = true;
    graph_.set_outputs(values(line, [&] { return line.at_end(); }));
  }

  void update(Line& line, bool is_gradient) {
    line.expect("%");
    Value* target = value(line);
    line.expect("=");
    line.expect("%");
    updates_.push_back({target, value(line), is_gradient});
  }

  Graph graph_;
  std::unordered_map<std::string, Value*> values_;
  std::vector<Update> updates_;
  bool has_return_ = false;
};

}  // namespace

// LibTorch's errors for invalid arguments are reported as errors of the text too.
Graph parse(std::string_view text) {
  try {
    return Parser().parse(text);
  } catch (const Error& error) {
    if (error.id() == "graph.parse") throw;
    LEVIN_FAIL("graph.parse", "{}", error.text());
  } catch (const c10::Error& error) {
    LEVIN_FAIL("graph.parse", "{}", printable(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    LEVIN_FAIL("graph.parse", "{}", printable(error.what()));
  }
}

}  // namespace levin::graph
