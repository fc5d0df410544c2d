#include "tools/glossary/glossary.h"

#include <algorithm>
#include <array>
#include <span>

#include "levin/base/options.h"

namespace levin::tools {
namespace {

constexpr size_t kColumns = 6;
/// Letters of a word that may be misspelt: shorter ones are near to too many others.
constexpr size_t kMisspelt = 3;
/// A search ignores these words.
constexpr std::array<std::string_view, 13> kFillers = {"a",  "an", "and", "do",  "for", "how", "i",
                                                       "in", "of", "on",  "the", "to",  "with"};

using Tokens = std::vector<std::string>;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// The runs of letters and digits, in lower case.
Tokens tokens_of(std::string_view text) {
  Tokens tokens;
  bool inside = false;
  for (const char c : text) {
    if (!is_letter(c)) {
      inside = false;
      continue;
    }
    if (!inside) tokens.emplace_back();
    inside = true;
    tokens.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return tokens;
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

/// The target of a link in docs/, relative to the repository: "fsdp.md" is "docs/fsdp.md".
std::string link_target(std::string_view target) {
  if (target.starts_with("../")) return std::string(target.substr(3));
  return "docs/" + std::string(target);
}

/// A cell without Markdown's signs. A link becomes its target or its text.
std::string plain(std::string_view cell, bool targets) {
  std::string text;
  for (size_t at = 0; at < cell.size(); ++at) {
    if (cell[at] == '`') continue;
    if (cell.substr(at).starts_with("**")) {
      ++at;
      continue;
    }
    const size_t middle = cell[at] == '[' ? cell.find("](", at) : std::string_view::npos;
    const size_t end = middle == std::string_view::npos ? middle : cell.find(')', middle);
    if (end == std::string_view::npos) {
      text += cell[at];
      continue;
    }
    text += targets ? link_target(cell.substr(middle + 2, end - middle - 2))
                    : std::string(cell.substr(at + 1, middle - at - 1));
    at = end;
  }
  return trimmed(text);
}

/// The cells of a table's line; "\|" is a bar within a cell.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  for (size_t at = 1; at < line.size(); ++at) {
    if (line[at] == '\\' && at + 1 < line.size() && line[at + 1] == '|') {
      cells.back() += line[++at];
    } else if (line[at] == '|') {
      cells.emplace_back();
    } else {
      cells.back() += line[at];
    }
  }
  cells.pop_back();  // after the last bar
  return cells;
}

/// True if the query's tokens stand at that place; its last token may be the beginning of a word.
bool matches_at(const Tokens& tokens, size_t at, std::span<const std::string> query) {
  if (at + query.size() > tokens.size()) return false;
  for (size_t i = 0; i < query.size(); ++i) {
    const bool last = i + 1 == query.size();
    if (last ? !tokens[at + i].starts_with(query[i]) : tokens[at + i] != query[i]) return false;
  }
  return true;
}

bool has(const Tokens& tokens, Tokens query) {
  const auto found = [&] {
    for (size_t at = 0; at < tokens.size(); ++at) {
      if (matches_at(tokens, at, query)) return true;
    }
    return false;
  };
  if (found()) return true;
  // "gradients" finds "gradient".
  if (query.back().size() < 4 || query.back().back() != 's') return false;
  query.back().pop_back();
  return found();
}

bool has_all(const Tokens& tokens, const std::vector<Tokens>& queries) {
  return std::ranges::all_of(queries, [&](const Tokens& query) { return has(tokens, query); });
}

std::vector<Tokens> queries_of(const std::vector<std::string>& words) {
  std::vector<Tokens> queries;
  for (const std::string& word : words) {
    Tokens tokens = tokens_of(word);
    if (!tokens.empty()) queries.push_back(std::move(tokens));
  }
  const auto is_filler = [](const Tokens& query) {
    return query.size() == 1 && std::ranges::find(kFillers, query[0]) != kFillers.end();
  };
  if (!std::ranges::all_of(queries, is_filler)) std::erase_if(queries, is_filler);
  return queries;
}

/// The words of all columns but the sentence and the page.
Tokens names_of(const GlossaryRow& row) {
  return tokens_of(row.term + " " + row.pytorch + " " + row.others + " " + row.use);
}

Tokens all_of(const GlossaryRow& row) {
  Tokens tokens = names_of(row);
  for (const std::string* text : {&row.sentence, &row.page}) {
    const Tokens more = tokens_of(*text);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

}  // namespace

std::vector<GlossaryRow> parse_glossary(std::string_view markdown) {
  std::vector<GlossaryRow> rows;
  bool in_table = false;
  while (!markdown.empty()) {
    const size_t end = std::min(markdown.find('\n'), markdown.size());
    const std::string_view line = markdown.substr(0, end);
    markdown.remove_prefix(std::min(end + 1, markdown.size()));
    if (!line.starts_with('|')) {
      in_table = false;
      continue;
    }
    if (line.starts_with("|---")) {
      in_table = true;
      continue;
    }
    const std::vector<std::string> cells = cells_of(line);
    if (!in_table || cells.size() != kColumns) continue;
    rows.push_back({plain(cells[0], false), plain(cells[1], false), plain(cells[2], false),
                    plain(cells[3], false), plain(cells[4], false), plain(cells[5], true)});
  }
  return rows;
}

FoundRows find_rows(const std::vector<GlossaryRow>& rows, const std::vector<std::string>& words) {
  const std::vector<Tokens> queries = queries_of(words);
  FoundRows found;
  if (queries.empty()) return found;
  std::array<std::vector<const GlossaryRow*>, 3> ranked;
  for (const GlossaryRow& row : rows) {
    if (!has_all(all_of(row), queries)) continue;
    size_t rank = 2;
    if (has_all(names_of(row), queries)) rank = 1;
    if (has_all(tokens_of(row.term), queries)) rank = 0;
    ranked.at(rank).push_back(&row);
  }
  found.num_named = ranked[0].size() + ranked[1].size();
  for (const auto& some : ranked) found.rows.insert(found.rows.end(), some.begin(), some.end());
  return found;
}

std::vector<std::string> suggestions(const std::vector<GlossaryRow>& rows,
                                     const std::vector<std::string>& words) {
  Tokens known;
  for (const GlossaryRow& row : rows) {
    for (std::string& name : names_of(row)) {
      if (name.size() >= kMisspelt) known.push_back(std::move(name));
    }
  }
  std::ranges::sort(known);
  const auto repeated = std::ranges::unique(known);
  known.erase(repeated.begin(), repeated.end());

  std::vector<std::string> answers;
  const auto add = [&](const std::vector<std::string>& query) {
    if (find_rows(rows, query).rows.empty()) return;
    std::string answer;
    for (const std::string& word : query) answer += (answer.empty() ? "" : " ") + word;
    if (std::ranges::find(answers, answer) == answers.end()) answers.push_back(answer);
  };
  // A word that is in no row becomes the nearest known word. If there is none, it is left out.
  std::vector<std::string> corrected;
  for (const Tokens& query : queries_of(words)) {
    for (const std::string& token : query) {
      if (!find_rows(rows, {token}).rows.empty()) {
        corrected.push_back(token);
      } else if (const auto guess = nearest(token, known); guess && token.size() >= kMisspelt) {
        corrected.push_back(*guess);
      }
    }
  }
  add(corrected);
  if (!answers.empty()) return answers;
  // All but one of the words, then each word alone.
  for (size_t left_out = 0; corrected.size() > 2 && left_out < corrected.size(); ++left_out) {
    std::vector<std::string> fewer = corrected;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(left_out));
    add(fewer);
  }
  if (!answers.empty()) return answers;
  for (const std::string& word : corrected) add({word});
  return answers;
}

}  // namespace levin::tools
