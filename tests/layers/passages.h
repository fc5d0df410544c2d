#pragma once
// The words of guides and of sources, as passages: words that stand together, with the line of each.

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace levin::test {

/// A paragraph, an item, a table's cell, a comment, or a literal with those that the compiler joins to it.
class Passage {
 public:
  /// Each run of white space becomes one space.
  void add(size_t line, std::string_view words);
  const std::string& text() const { return text_; }
  size_t last_line() const { return lines_.back().second; }
  /// Line of the letter at `place` of text().
  size_t line_at(size_t place) const;

 private:
  std::string text_;
  std::vector<std::pair<size_t, size_t>> lines_;  // where each begins in text_, and its number
};

using Passages = std::vector<Passage>;

Passages passages_of_guide(const std::filesystem::path& guide);

struct SourceWords {
  Passages comments;
  Passages literals;
};

SourceWords words_of_source(const std::filesystem::path& source);

/// A letter, a digit or _.
bool is_of_a_word(char letter);

}  // namespace levin::test
