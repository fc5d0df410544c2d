#include "levin/graph/compile/difference.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "levin/graph/graph.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

constexpr std::string_view kTensorConstant = "_tensor_constant";  // Recorder::Impl::freeze

bool is_same_memory(const at::Tensor& before, const at::Tensor& now) {
  if (!before.device().is_xla()) return before.const_data_ptr() == now.const_data_ptr();
  return before.is_alias_of(now) && before.storage_offset() == now.storage_offset();
}

class Comparison {
 public:
  std::optional<Difference> run(const Graph& before, const Graph& now) {
    now_ = &now;
    auto other = now.nodes().begin();
    size_t number = 0;
    for (const Node& node : before.nodes()) {
      if (other == now.nodes().end()) {
        return Difference{fmt::format("it ended after {} operators", number)};
      }
      is_read_ = false;
      if (auto difference = compare(node, *other)) {
        return Difference{
            fmt::format("operator {}, {}: {}", number, described(*other), *difference), is_read_};
      }
      for (size_t i = 0; i < node.outputs().size(); ++i) {
        twins_[node.outputs()[i]] = other->outputs()[i];
      }
      ++other;
      if (node.opcode() == Opcode::kCallFunction) ++number;
    }
    if (auto difference = compare(before.updates(), now.updates())) return Difference{*difference};
    return std::nullopt;
  }

 private:
  std::string described(const Node& node) const {
    std::string text(node.target());
    if (!node.name().empty()) text += " of " + node.name();
    const std::string& source = source_of(node);
    if (!source.empty()) text += " in " + source;
    return text;
  }

  /// A tensor that lives across calls is met by its first reader; what is written into a part of it
  /// is put into the whole by nodes that no code ran.
  const std::string& source_of(const Node& node) const {
    if (node.opcode() != Opcode::kGetAttr) return node.source();
    for (const Node* user : node.output().users()) {
      if (!user->source().empty()) return user->source();
    }
    const auto is_it = [&](const Node& other) { return &other == &node; };
    auto later = std::ranges::find_if(now_->nodes(), is_it);
    while (later != now_->nodes().end() && later->source().empty()) ++later;
    return later != now_->nodes().end() ? later->source() : node.source();
  }

  std::optional<std::string> compare(const Node& before, const Node& now) {
    if (before.opcode() != now.opcode() || before.target() != now.target()) {
      return fmt::format("was {}", described(before));
    }
    if (before.outputs().size() != now.outputs().size()) {
      return fmt::format("gave {} values and gives {}", before.outputs().size(),
                         now.outputs().size());
    }
    if (before.opcode() == Opcode::kGetAttr) {
      if (auto difference = compare_types(before, now)) return difference;
      return compare_state(before, now);
    }
    if (!before.is_host_read()) {
      if (auto difference = compare_types(before, now)) return difference;
      return compare_arguments(before, now);
    }
    if (auto difference = compare_arguments(before, now)) return difference;
    is_read_ = true;
    if (auto difference = compare_types(before, now)) return difference;
    return compare_reads(before, now);
  }

  static std::optional<std::string> compare_types(const Node& before, const Node& now) {
    for (size_t i = 0; i < before.outputs().size(); ++i) {
      const ValueType& was = before.outputs()[i]->type();
      const ValueType& is = now.outputs()[i]->type();
      if (was != is) return fmt::format("gave {} and gives {}", text_of(was), text_of(is));
    }
    return std::nullopt;
  }

  static std::optional<std::string> compare_reads(const Node& before, const Node& now) {
    if (before.host_read() == nullptr || now.host_read() == nullptr) return std::nullopt;
    if (*before.host_read() == *now.host_read()) return std::nullopt;
    return fmt::format("the host read {} and reads {}", before.host_read()->text(),
                       now.host_read()->text());
  }

  static std::optional<std::string> compare_state(const Node& before, const Node& now) {
    if (is_same_memory(before.tensor(), now.tensor())) return std::nullopt;
    // The recorder keeps a copy of what the host wrote into a new tensor.
    const bool is_constant =
        before.name() == now.name() && before.name().starts_with(kTensorConstant);
    if (is_constant) {
      if (at::equal(before.tensor(), now.tensor())) return std::nullopt;
      return "the host wrote other numbers into a new tensor than in the call before";
    }
    return "is another tensor than in the call before; pass it as an input, or keep one tensor, "
           "copy_ into it before the step and read its clone() in the step, because backward may "
           "need it";
  }

  std::optional<std::string> compare_arguments(const Node& before, const Node& now) {
    if (before.arguments().size() != now.arguments().size()) return "has other arguments";
    for (size_t i = 0; i < before.arguments().size(); ++i) {
      const Argument& was = before.arguments()[i];
      const Argument& is = now.arguments()[i];
      const c10::IValue* constant = constant_of(was);
      const bool is_same = was.index() == is.index() &&
                           (constant != nullptr ? is_same_constant(*constant, *constant_of(is))
                                                : are_twins(was, is));
      if (is_same) continue;
      const bool is_parameter =
          before.opcode() == Opcode::kCallFunction && i < info_of(before).num_parameters();
      const c10::Argument* parameter = is_parameter ? &info_of(before).parameters()[i] : nullptr;
      const std::string name = parameter == nullptr ? std::to_string(i) : parameter->name();
      if (was.index() != is.index()) return fmt::format("its {} has another type", name);
      if (constant == nullptr)
        return fmt::format("its {} is the result of another operator or another input", name);
      if (constant->isGenerator()) {
        return fmt::format("its {} is another random generator; keep one", name);
      }
      const std::string then = text_of(*constant, parameter);
      const std::string today = text_of(*constant_of(is), parameter);
      if (then != today) return fmt::format("its {} was {} and is {}", name, then, today);
    }
    return std::nullopt;
  }

  bool are_twins(const Argument& was, const Argument& is) const {
    if (const auto* value = std::get_if<Value*>(&was)) {
      return twin_of(*value) == std::get<Value*>(is);
    }
    return std::ranges::equal(std::get<Values>(was), std::get<Values>(is), {},
                              [this](const Value* value) { return twin_of(value); });
  }

  const Value* twin_of(const Value* value) const {
    return value == nullptr ? nullptr : twins_.at(value);
  }

  std::optional<std::string> compare(const std::vector<Update>& before,
                                     const std::vector<Update>& now) const {
    const auto is_same = [this](const Update& was, const Update& is) {
      return was.is_gradient == is.is_gradient && twin_of(was.target) == is.target &&
             twin_of(was.value) == is.value;
    };
    if (std::ranges::equal(before, now, is_same)) return std::nullopt;
    return fmt::format("it updated {} tensors and gradients and now updates {}, or other ones",
                       before.size(), now.size());
  }

  const Graph* now_ = nullptr;
  std::unordered_map<const Value*, const Value*> twins_;  ///< now's value, by the earlier one
  bool is_read_ = false;  ///< the comparison is at a value that the host reads
};

}  // namespace

std::optional<Difference> first_difference(const Graph& before, const Graph& now) {
  return Comparison().run(before, now);
}

}  // namespace levin::graph
