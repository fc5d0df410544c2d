#pragma once
// Reads the rows of docs/glossary.md, which is compiled in, and searches them for `levin help`.
//
//   for (const GlossaryRow* row : find_rows(rows, {"kv", "cache"}).rows) std::cout << row->term;

#include <string>
#include <string_view>
#include <vector>

namespace levin::tools {

/// One row of a table, without Markdown.
struct GlossaryRow {
  std::string term;      ///< levin's name
  std::string pytorch;   ///< names in PyTorch, Lightning and Accelerate
  std::string others;    ///< names in DeepSpeed, JAX, transformers, ...
  std::string sentence;  ///< what it is
  std::string use;       ///< flag or API
  std::string page;      ///< "docs/fsdp.md"
};

/// The text of docs/glossary.md.
std::string_view glossary_text();
/// Returns the rows of all tables with six columns, in the order of the page.
std::vector<GlossaryRow> parse_glossary(std::string_view markdown);

struct FoundRows {
  /// Best first: the term has all words, then the names and flags have them, then any column.
  std::vector<const GlossaryRow*> rows;
  size_t num_named = 0;  ///< the first rows: all words are in their term, names or flags
};

/// Returns the rows that have every word as the beginning of a word in some column, in upper or lower case.
/// The parts of one word (no_sync, torch.compile, --zero-stage) must stand next to each other. The result
/// points into rows.
FoundRows find_rows(const std::vector<GlossaryRow>& rows, const std::vector<std::string>& words);

/// Returns searches to try when find_rows() finds nothing: with misspelt words corrected ("kv cache"), else
/// with fewer words.
std::vector<std::string> suggestions(const std::vector<GlossaryRow>& rows,
                                     const std::vector<std::string>& words);

}  // namespace levin::tools
