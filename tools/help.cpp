// levin help WORD...: prints the rows of docs/glossary.md that have all of the words.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/options.h"
#include "tools/command.h"
#include "tools/glossary/glossary.h"
#include "tools/subcommands.h"

namespace levin::tools {
namespace {

constexpr size_t kWidth = 96;
constexpr size_t kIndent = 12;

/// Prints "    use     --strategy zero ..." and wraps the text.
void print_field(std::string_view name, std::string_view text) {
  if (text.empty()) return;
  std::string line = fmt::format("{:<{}}", fmt::format("    {}", name), kIndent);
  size_t used = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (used > 0 && line.size() + 1 + word.size() > kWidth) {
      std::cout << line << '\n';
      line.assign(kIndent, ' ');
      used = 0;
    }
    if (used++ > 0) line += ' ';
    line += word;
  }
  std::cout << line << '\n';
}

void print_row(const GlossaryRow& row) {
  std::cout << row.term << '\n';
  print_field("is", row.sentence);
  print_field("use", row.use);
  print_field("page", row.page);
  const bool both = !row.pytorch.empty() && !row.others.empty();
  print_field("also", row.pytorch + (both ? "; " : "") + row.others);
}

void print_usage() {
  std::cout << "usage: levin help WORD...\n\n"
               "Finds a feature by its name in PyTorch, Lightning, Accelerate, DeepSpeed, JAX or\n"
               "transformers. Prints the rows of docs/glossary.md that have all of the words.\n\n"
               "  levin help kv cache\n"
               "  levin help zero stage 3\n"
               "  levin help --gradient-clip-val\n\n"
               "levin SUBCOMMAND --help lists the options of a subcommand:\n\n";
  print_subcommands(std::cout);
}

void print_subcommand(std::string_view word) {
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.name != word) continue;
    std::cout << fmt::format("levin {}: {}\n    levin {} --help lists its options\n\n",
                             subcommand.name, subcommand.help, subcommand.name);
  }
}

int print_nothing_found(const std::vector<GlossaryRow>& rows,
                        const std::vector<std::string>& words) {
  std::string asked;
  for (const std::string& word : words) asked += (asked.empty() ? "" : " ") + printable(word);
  std::cerr << fmt::format("levin help: no row of the glossary has '{}'\n", asked);
  const std::vector<std::string> tries = suggestions(rows, words);
  for (const std::string& instead : tries) std::cerr << "  try: levin help " << instead << '\n';
  if (tries.empty()) {
    std::cerr << "  try: another word for it, or docs/glossary.md, which has all rows\n";
  }
  return 1;
}

}  // namespace

int help(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty() || (words.size() == 1 && (words[0] == "--help" || words[0] == "-h"))) {
    print_usage();
    return 0;
  }
  const std::vector<GlossaryRow> rows = parse_glossary(glossary_text());
  const FoundRows found = find_rows(rows, words);
  if (found.rows.empty()) return print_nothing_found(rows, words);
  if (words.size() == 1) print_subcommand(words[0]);
  // If rows have the words in their names, rows that only mention them are listed in one line each.
  const size_t whole = found.num_named > 0 ? found.num_named : found.rows.size();
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0) std::cout << '\n';
    print_row(*found.rows[i]);
  }
  if (whole < found.rows.size()) std::cout << "\nalso mentioned by:\n";
  for (size_t i = whole; i < found.rows.size(); ++i) {
    std::cout << fmt::format("    {} ({})\n", found.rows[i]->term, found.rows[i]->page);
  }
  return 0;
}

}  // namespace levin::tools
