#include "levin/xla/device/compile/compile_log.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/graph.h"

namespace levin::xla {
namespace {

constexpr int64_t kManyInARow = 8;
constexpr int64_t kFewRuns = 4;
constexpr size_t kRemembered = 16;

/// One of each node, in order.
std::vector<std::string> lines_of(const graph::Graph& graph) {
  // Numbers with a fraction are given to a program, which is the same whatever they are.
  static const std::regex fraction(R"([0-9]+(\.[0-9]+(e[-+]?[0-9]+)?|e[-+][0-9]+))");
  std::vector<std::string> lines;
  std::istringstream text(graph::to_text(graph));
  for (std::string line; std::getline(text, line);) {
    lines.push_back(std::regex_replace(line, fraction, "#"));
  }
  return lines;
}

/// The first operator that is another, and where it is.
std::string other_operator(const std::vector<std::string>& before,
                           const std::vector<std::string>& now, const graph::Graph& graph) {
  size_t i = 0;
  for (const graph::Node& node : graph.nodes()) {
    if (i >= now.size()) break;
    const bool is_other = i >= before.size() || before[i] != now[i];
    ++i;
    if (!is_other || node.opcode() != graph::Opcode::kCallFunction) continue;
    return node.source().empty() ? std::string(node.target())
                                 : fmt::format("{} in {}", node.target(), node.source());
  }
  return "";
}

}  // namespace

std::vector<std::string> inputs_of(const Program& program) {
  std::vector<std::string> inputs;
  for (const graph::Node* node : program.inputs) {
    const graph::ValueType& type = node->output().type();
    inputs.push_back(fmt::format("{} {}", node->name(), type_text(type.dtype, type.sizes)));
  }
  return inputs;
}

/// The last that has as many operators, or else the last.
const CompileLog::Compiled& CompileLog::most_alike(const Compiled& now) const {
  const auto found = std::find_if(last_.rbegin(), last_.rend(), [&](const auto& program) {
    return program.num_operators == now.num_operators;
  });
  return found == last_.rend() ? last_.back() : *found;
}

std::string CompileLog::difference(const Compiled& before, const Compiled& now) {
  if (before.inputs.size() == now.inputs.size()) {
    for (size_t i = 0; i < now.inputs.size(); ++i) {
      if (before.inputs[i] == now.inputs[i]) continue;
      return fmt::format("takes {}, took {}", now.inputs[i], before.inputs[i]);
    }
  }
  if (before.num_operators != now.num_operators) {
    return fmt::format("other code: {} operators, were {}", now.num_operators,
                       before.num_operators);
  }
  if (before.inputs.size() != now.inputs.size()) {
    return fmt::format("{} input tensors, were {}", now.inputs.size(), before.inputs.size());
  }
  return "an operator, or a number that is fixed in the program, differs";
}

std::string CompileLog::words_of(const Program& program, const graph::Graph& graph) const {
  int64_t of_optimizer = 0;
  for (const graph::Node& node : graph.nodes())
    of_optimizer += optimizer_nodes.contains(&node) ? 1 : 0;
  std::string words = fmt::format("{} operators", program.num_operators);
  if (of_optimizer == 0) return words;
  words += fmt::format(", {} of them the optimizer's", of_optimizer);
  if (!optimizer_is_fused) {
    words +=
        " (torch::optim runs several per parameter; levin::optim's sgd, adam and adamw run one for "
        "all)";
  }
  return words;
}

bool CompileLog::is_busy() const {
  return num_in_a_row_ > 1 && report_.executions - compiled_at_ <= kFewRuns;
}

void CompileLog::note(const Program& program, const graph::Graph& graph, double seconds,
                      bool from_disk) {
  Compiled now = {inputs_of(program), lines_of(graph), program.num_operators};
  std::string reason = "the first program";
  if (!last_.empty()) {
    const Compiled& like = most_alike(now);
    reason = difference(like, now);
    const std::string place = other_operator(like.lines, now.lines, graph);
    if (!place.empty()) reason += "; from " + place + " on";
  }
  (from_disk ? report_.disk_cache_hits : report_.compilations) += 1;
  if (!from_disk) report_.compile_s += seconds;
  report_.programs.push_back({reason, program.num_operators, seconds, from_disk});
  log::info("xla: {} {} operators in {:.2f} s: {}", from_disk ? "read from disk" : "compiled",
            program.num_operators, seconds, reason);
  last_.push_back(std::move(now));
  if (last_.size() > kRemembered) last_.pop_front();
  if (from_disk) return;
  num_in_a_row_ = report_.executions - compiled_at_ <= kFewRuns ? num_in_a_row_ + 1 : 1;
  compiled_at_ = report_.executions;
  if (num_in_a_row_ % kManyInARow == 0) {
    log::warn(
        "xla: {} programs were compiled within {} runs, {:.1f} s in all; the last {}. Keep "
        "shapes and numbers the same from step to step: pad batches to a few lengths "
        "(data::pad_collate), and the last one (pad_last_batch)",
        num_in_a_row_, num_in_a_row_ * kFewRuns, report_.compile_s, reason);
  }
}

}  // namespace levin::xla
