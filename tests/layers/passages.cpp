#include "tests/layers/passages.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>

#include "tests/layers/guides.h"
#include "tests/support/scratch.h"

namespace levin::test {
namespace {

// "- ", "1. "
#define LEVIN_ITEM "(?:[-*]|[0-9]+\\.) "

void add_cells(const GuideLine& row, Passages& passages) {
  for (size_t begin = 1; begin < row.text.size();) {
    const size_t end = std::min(row.text.find('|', begin), row.text.size());
    passages.emplace_back().add(row.number, row.text.substr(begin, end - begin));
    begin = end + 1;
  }
}

class SourceReader {
 public:
  explicit SourceReader(std::string text) : text_(std::move(text)) {}

  SourceWords read() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (text_.compare(at_, 2, "//") == 0) {
        read_comment();
      } else if (letter == '"') {
        at_ > 0 && text_[at_ - 1] == 'R' ? read_raw_literal() : read_literal();
      } else if (letter == '\'' && !(at_ > 0 && is_of_a_word(text_[at_ - 1]))) {  // not of 1'000
        pass(end_of_quoted());
      } else {
        if (std::isspace(static_cast<unsigned char>(letter)) == 0) {
          literal_goes_on_ = false;
          has_code_ = true;
        }
        pass(at_ + 1);
      }
    }
    return std::move(words_);
  }

 private:
  void pass(size_t end) {
    for (end = std::min(end, text_.size()); at_ < end; ++at_) {
      if (text_[at_] != '\n') continue;
      ++line_;
      has_code_ = false;
    }
  }

  size_t end_of_line() const { return std::min(text_.find('\n', at_), text_.size()); }

  /// After the quote that ends what begins here, on the same line.
  size_t end_of_quoted() const {
    for (size_t end = at_ + 1; end < end_of_line(); ++end) {
      if (text_[end] == text_[at_]) return end + 1;
      if (text_[end] == '\\') ++end;
    }
    return end_of_line();
  }

  /// A comment goes on in the next line, up to an empty one or an item.
  void read_comment() {
    static const std::regex item(" *" LEVIN_ITEM ".*");
    const size_t end = end_of_line();
    const size_t begin = std::min(text_.find_first_not_of("/<", at_), end);
    const std::string comment = text_.substr(begin, end - begin);
    const bool is_of_member = text_.compare(at_, 4, "///<") == 0;
    Passages& comments = words_.comments;
    const bool goes_on = !comments.empty() && comments.back().last_line() + 1 == line_ &&
                         !has_code_ && is_of_member == is_of_member_ && !is_empty_ &&
                         !std::regex_match(comment, item);
    if (!goes_on) comments.emplace_back();
    comments.back().add(line_, comment + " ");
    is_of_member_ = is_of_member;
    is_empty_ = comment.find_first_not_of(' ') == std::string::npos;
    pass(end);
  }

  void read_literal() {
    const size_t end = end_of_quoted();
    std::string words = text_.substr(at_ + 1, end - at_ - 2);
    for (size_t at = 0; (at = words.find("\\n", at)) != std::string::npos;) {
      words.replace(at, 2, " ");
    }
    if (!literal_goes_on_) words_.literals.emplace_back();
    words_.literals.back().add(line_, words);
    literal_goes_on_ = has_code_ = true;
    pass(end);
  }

  /// Lines that begin with # are comments of a table.
  void read_raw_literal() {
    const size_t begin = text_.find('(', at_);
    const std::string close = ")" + text_.substr(at_ + 1, begin - at_ - 1) + "\"";
    const size_t end = std::min(text_.find(close, begin), text_.size());
    words_.literals.emplace_back();
    for (pass(begin + 1); at_ < end;) {
      const size_t line_end = std::min(end_of_line(), end);
      const std::string line = text_.substr(at_, line_end - at_);
      const size_t first = std::min(line.find_first_not_of(' '), line.size());
      if (line[first] != '#') words_.literals.back().add(line_, line + " ");
      pass(std::min(line_end + 1, end));
    }
    pass(end + close.size());
    literal_goes_on_ = false;
    has_code_ = true;
  }

  std::string text_;
  size_t at_ = 0;
  size_t line_ = 1;
  bool has_code_ = false;         // this line, before at_
  bool literal_goes_on_ = false;  // only white space and comments since the last one
  bool is_of_member_ = false;     // the last comment: ///<
  bool is_empty_ = false;         // the last comment
  SourceWords words_;
};

}  // namespace

bool is_of_a_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

void Passage::add(size_t line, std::string_view words) {
  lines_.emplace_back(text_.size(), line);
  for (const char letter : words) {
    const bool is_space = std::isspace(static_cast<unsigned char>(letter)) != 0;
    if (!is_space) text_ += letter;
    if (is_space && !text_.empty() && text_.back() != ' ') text_ += ' ';
  }
}

size_t Passage::line_at(size_t place) const {
  const auto after = std::ranges::upper_bound(lines_, place, {}, &std::pair<size_t, size_t>::first);
  return std::prev(after)->second;
}

Passages passages_of_guide(const std::filesystem::path& guide) {
  static const std::regex begins(" *(?:" LEVIN_ITEM "|#|<!--).*");
  Passages passages;
  bool goes_on = false;
  for (const GuideLine& line : lines_of(guide)) {
    if (line.text.starts_with('|')) {
      add_cells(line, passages);
      goes_on = false;
      continue;
    }
    if (!goes_on || line.is_code || std::regex_match(line.text, begins)) passages.emplace_back();
    passages.back().add(line.number, line.text + " ");
    goes_on = !line.is_code && !line.text.starts_with('#') &&
              line.text.find_first_not_of(' ') != std::string::npos;
  }
  return passages;
}

SourceWords words_of_source(const std::filesystem::path& source) {
  return SourceReader(get(source)).read();
}

}  // namespace levin::test
