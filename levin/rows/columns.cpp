// Finds the task that a file's columns are for.
#include <fmt/ranges.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/rows/plan.h"

namespace levin::text::row {
namespace {

using Kind = data::Record::Kind;

/// A part of a task and the names that its column may have.
struct Role {
  std::string_view name;
  std::vector<std::string_view> columns;
  bool is_needed = true;
};

struct Shape {
  std::string_view task;
  std::vector<Role> roles;
};

/// The first that has all its columns is the task's.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {"sft", {{"messages", {"messages", "conversations"}}}},
      {"sft", {{"prompt", {"prompt"}}, {"completion", {"completion"}}}},
      {"dpo", {{"chosen", {"chosen"}}, {"rejected", {"rejected"}}, {"prompt", {"prompt"}, false}}},
      {"tag",
       {{"tokens", {"tokens", "words"}}, {"tags", {"tags", "ner_tags", "pos_tags", "labels"}}}},
      {"embed",
       {{"anchor", {"anchor", "query", "question", "sentence1"}},
        {"positive", {"positive", "answer", "sentence2"}},
        {"score", {"score", "similarity_score"}}}},
      {"embed", {{"anchor", {"anchor", "query"}}, {"positive", {"positive", "answer"}}}},
      {"classify",
       {{"text", {"text", "sentence", "sentence1", "premise"}},
        {"label", {"label", "labels"}},
        {"text_pair", {"text_pair", "sentence2", "hypothesis"}, false}}},
      {"embed", {{"anchor", {"sentence1", "question"}}, {"positive", {"sentence2", "answer"}}}},
      {"lm", {{"text", {"text"}}}},
      {"sft", {{"text", {"text"}}}},
      {"mlm", {{"text", {"text"}}}}};
  return kShapes;
}

/// "prompt and completion, or text"
std::string columns_of(std::string_view task) {
  std::vector<std::string> ways;
  for (const Shape& shape : shapes()) {
    if (shape.task != task) continue;
    std::vector<std::string_view> needed;
    for (const Role& role : shape.roles) {
      if (role.is_needed) needed.push_back(role.name);
    }
    std::string way = fmt::format("{}", fmt::join(needed, " and "));
    if (std::ranges::count(ways, way) == 0) ways.push_back(std::move(way));
  }
  return fmt::format("{}", fmt::join(ways, ", or "));
}

/// {"text=description"} by role.
std::map<std::string, std::string, std::less<>> given_columns(const RowsOptions& options) {
  std::map<std::string, std::string, std::less<>> given;
  for (const std::string& entry : options.columns) {
    const size_t at = entry.find('=');
    LEVIN_CHECK(at != std::string::npos && at > 0 && at + 1 < entry.size(), "text.rows.options",
                "got the column '{}', wanted role=column, such as text=description", entry);
    given[entry.substr(0, at)] = entry.substr(at + 1);
  }
  return given;
}

void check_roles(const std::map<std::string, std::string, std::less<>>& given) {
  std::vector<std::string> known = {"negative"};
  for (const Shape& shape : shapes()) {
    for (const Role& role : shape.roles) known.emplace_back(role.name);
  }
  for (const auto& [role, column] : given) {
    const bool is_known = std::ranges::count(known, role) > 0;
    const auto near = nearest(role, known);
    LEVIN_CHECK(is_known, "text.rows.options", "there is no role '{}' for the column '{}'{}", role,
                column, near ? "; did you mean '" + *near + "'?" : "");
  }
}

/// The columns of that shape, where the row has them.
std::optional<Columns> columns_of(const Shape& shape,
                                  const std::map<std::string, std::string, std::less<>>& given,
                                  const data::Record& first) {
  Columns columns;
  for (const Role& role : shape.roles) {
    if (const auto own = given.find(role.name); own != given.end()) {
      if (!first.has(own->second)) return std::nullopt;
      columns.put(role.name, own->second);
      continue;
    }
    const auto found =
        std::ranges::find_if(role.columns, [&](std::string_view name) { return first.has(name); });
    if (found != role.columns.end()) {
      columns.put(role.name, std::string(*found));
    } else if (role.is_needed) {
      return std::nullopt;
    }
  }
  return columns;
}

std::vector<std::string> negatives_of(
    const data::Record& first, const std::map<std::string, std::string, std::less<>>& given) {
  if (const auto own = given.find("negative"); own != given.end()) return {own->second};
  std::vector<std::string> negatives;
  for (const std::string& name : first.names()) {
    if ((name == "negatives" || name == "negative" || name.starts_with("negative_")) &&
        first.has(name)) {
      negatives.push_back(name);
    }
  }
  return negatives;
}

}  // namespace

void find_columns(const data::Record& first, Plan& plan) {
  const auto given = given_columns(plan.options);
  check_roles(given);
  const std::string& wanted = plan.options.task;
  for (const Shape& shape : shapes()) {
    if (!wanted.empty() && shape.task != wanted) continue;
    const auto columns = columns_of(shape, given, first);
    if (!columns) continue;
    plan.task = shape.task;
    plan.columns = *columns;
    if (plan.task == "embed") plan.negatives = negatives_of(first, given);
    for (const char* role : {"messages", "prompt", "chosen"}) {
      plan.in_chats =
          plan.in_chats || (columns->has(role) && first.kind((*columns)[role]) == Kind::kList);
    }
    return;
  }
  const std::string got = printable(fmt::format("{}", fmt::join(first.names(), ", ")));
  LEVIN_CHECK(!wanted.empty(), "text.rows.columns",
              "{}: no task has the columns {}; rename them with the option columns, such as "
              "text=description, or set task",
              first.where(), got);
  LEVIN_FAIL(
      "text.rows.columns",
      "{}: got the columns {}, wanted {} for {}; rename them with the option columns, such as "
      "text=description",
      first.where(), got, columns_of(wanted), wanted);
}

}  // namespace levin::text::row
