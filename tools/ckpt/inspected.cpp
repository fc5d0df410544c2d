#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <string_view>
#include <vector>

#include "levin/base/options.h"
#include "tools/ckpt/ckpt.h"

namespace levin::tools {
namespace {

using nlohmann::json;

constexpr size_t kLongestShown = 400;  // bytes

/// Lines of the training state: "trainer.epoch: 3".
struct Scalars {
  std::vector<std::string> lines;
  int64_t num_tensors = 0;
};

std::string shortened(std::string_view text) {
  if (text.size() <= kLongestShown) return printable(text);
  return fmt::format("{}... ({} bytes)", printable(text.substr(0, kLongestShown)), text.size());
}

struct Row {
  std::string name;
  at::Tensor tensor;
};

std::vector<Row> rows_of(const State& state, int64_t num_tensors) {
  std::vector<Row> rows;
  for (const auto& [name, value] : state.values())
    rows.push_back({name, std::get<at::Tensor>(value)});
  if (num_tensors < 0) return rows;
  std::ranges::stable_sort(rows, std::ranges::greater(),
                           [](const Row& row) { return row.tensor.nbytes(); });
  rows.resize(std::min(rows.size(), static_cast<size_t>(num_tensors)));
  return rows;
}

/// Bytes and elements of all tensors of a state.
std::pair<int64_t, int64_t> size_of(const State& state) {
  int64_t elements = 0, bytes = 0;
  for (const auto& [name, value] : state.values()) {
    const at::Tensor& tensor = std::get<at::Tensor>(value);
    // Views that repeat one element may have more in all than 64 bits count.
    const auto add = [](int64_t& sum, int64_t own) {
      if (__builtin_add_overflow(sum, own, &sum)) sum = std::numeric_limits<int64_t>::max();
    };
    add(elements, tensor.numel());
    add(bytes, static_cast<int64_t>(tensor.nbytes()));
  }
  return {elements, bytes};
}

/// A name that a long key makes long is cut where it would be written again for each value below.
void add_scalars(const State& state, const std::string& path, Scalars& all) {
  for (const auto& [key, value] : state.values()) {
    std::string name = path.empty() ? key : path + "." + key;
    if (name.size() > kLongestShown) name = name.substr(0, kLongestShown) + "...";
    if (const auto* child = std::get_if<State>(&value)) {
      add_scalars(*child, name, all);
      continue;
    }
    std::string text;
    if (const auto* own = std::get_if<std::string>(&value)) {
      text = shortened(*own);
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      text = fmt::format("{}", *flag);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      text = fmt::format("{}", *integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      text = fmt::format("{:.17g}", *number);
    } else {
      ++all.num_tensors;
      continue;
    }
    all.lines.push_back(fmt::format("{}: {}", printable(name), text));
  }
}

json json_of(const CheckpointContents& contents, int64_t num_tensors) {
  json all = {{"kind", contents.kind}, {"models", json::object()}};
  for (const auto& [model, state] : contents.weights) {
    const auto [elements, bytes] = size_of(state);
    json& own = all["models"][model];
    own = {{"elements", elements}, {"bytes", bytes}, {"tensors", json::object()}};
    for (const Row& row : rows_of(state, num_tensors)) {
      own["tensors"][row.name] = {{"dtype", c10::toString(row.tensor.scalar_type())},
                                  {"sizes", row.tensor.sizes().vec()}};
    }
  }
  Scalars scalars;
  add_scalars(contents.training, "", scalars);
  all["training"] = {{"tensors", scalars.num_tensors}, {"scalars", scalars.lines}};
  return all;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  constexpr const char* kUnits[] = {"", "kB", "MB", "GB", "TB"};
  while (number >= 999.5 && unit + 1 < std::size(kUnits)) {
    number /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", number, kUnits[unit]);
}

std::string inspected(const std::filesystem::path& path, int64_t num_tensors, bool as_json) {
  const CheckpointContents contents = read_contents(path);
  if (as_json)
    return json_of(contents, num_tensors).dump(2, ' ', false, json::error_handler_t::replace) +
           "\n";
  std::string text = fmt::format("{}: {}\n", path.string(), contents.kind);
  for (const auto& [model, state] : contents.weights) {
    const auto [elements, bytes] = size_of(state);
    text += fmt::format("\n{}: {} tensors, {} numbers, {}\n", printable(model),
                        state.values().size(), elements, bytes_text(bytes));
    const auto rows = rows_of(state, num_tensors);
    for (const Row& row : rows) {
      text += fmt::format("  {:<9} {:<18} {}\n", c10::toString(row.tensor.scalar_type()),
                          fmt::format("[{}]", fmt::join(row.tensor.sizes(), ", ")),
                          printable(row.name));
    }
    if (rows.size() < state.values().size()) {
      text += fmt::format("  and {} smaller ones; --all names them\n",
                          state.values().size() - rows.size());
    }
  }
  Scalars scalars;
  add_scalars(contents.training, "", scalars);
  if (scalars.lines.empty() && scalars.num_tensors == 0) return text;
  text += fmt::format("\ntraining state: {} tensors and\n", scalars.num_tensors);
  for (const std::string& line : scalars.lines) text += "  " + line + "\n";
  return text;
}

}  // namespace levin::tools
