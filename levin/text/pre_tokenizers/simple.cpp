// The pre-tokenizers of a few lines.
#include "levin/text/pre_tokenizers/kinds.h"
#include "levin/text/pre_tokenizers/splits.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::Unicode;

class WhitespaceSplit : public PreTokenizer {
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    const Unicode& unicode = Unicode::instance();
    split_by_code_point(text, pieces, SplitBehaviour::kRemoved,
                        [&](char32_t c) { return unicode.is(c, unicode::kSpace); });
  }
};

/// White space is left out, and each mark of punctuation is a piece.
class BertPreTokenizer : public PreTokenizer {
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    const Unicode& unicode = Unicode::instance();
    std::vector<Piece>& made = text.scratch().pieces;
    made.clear();
    const std::string_view bytes = text.text();
    for (const Piece& piece : pieces) {
      if (piece.token >= 0) {
        made.push_back(piece);
        continue;
      }
      uint32_t begin = piece.begin;  // of the word
      for (size_t at = piece.begin; at < piece.end;) {
        const auto place = static_cast<uint32_t>(at);
        const uint32_t traits = unicode.traits(utf8::next(bytes, at));
        if ((traits & (unicode::kSpace | unicode::kBertPunctuation)) == 0) continue;
        if (place > begin) made.push_back({begin, place});
        begin = static_cast<uint32_t>(at);
        if (traits & unicode::kBertPunctuation) made.push_back({place, begin});
      }
      if (piece.end > begin) made.push_back({begin, piece.end});
    }
    pieces.swap(made);
  }
};

/// \w+|[^\w\s]+
class Whitespace : public PreTokenizer {
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    split(text, pieces, SplitBehaviour::kRemoved, true,
          [](std::string_view part, std::vector<Bytes>& found) { find(part, found); });
  }
  static void find(std::string_view part, std::vector<Bytes>& found) {
    const Unicode& unicode = Unicode::instance();
    constexpr uint32_t kKinds = unicode::kPlainWord | unicode::kSpace;
    uint32_t last = unicode::kSpace;
    for (size_t at = 0; at < part.size();) {
      const auto begin = static_cast<uint32_t>(at);
      const uint32_t kind = unicode.traits(utf8::next(part, at)) & kKinds;
      if (kind & unicode::kSpace) {
        last = unicode::kSpace;
        continue;
      }
      if (kind == last) {
        found.back().end = static_cast<uint32_t>(at);
      } else {
        found.push_back({begin, static_cast<uint32_t>(at)});
      }
      last = kind;
    }
  }
};

class Punctuation : public PreTokenizer {
 public:
  explicit Punctuation(const Component& component) {
    if (component.has("behavior")) behaviour_ = read_behaviour(component.at("behavior"));
  }
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    const Unicode& unicode = Unicode::instance();
    split_by_code_point(text, pieces, behaviour_,
                        [&](char32_t c) { return unicode.is(c, unicode::kBertPunctuation); });
  }

 private:
  SplitBehaviour behaviour_ = SplitBehaviour::kIsolated;
};

class Digits : public PreTokenizer {
 public:
  explicit Digits(const Component& component)
      : behaviour_(component.flag("individual_digits", false) ? SplitBehaviour::kIsolated
                                                              : SplitBehaviour::kContiguous) {}
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    const Unicode& unicode = Unicode::instance();
    split_by_code_point(text, pieces, behaviour_,
                        [&](char32_t c) { return unicode.is(c, unicode::kNumeric); });
  }

 private:
  SplitBehaviour behaviour_;
};

class CharDelimiterSplit : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(const Component& component)
      : delimiter_(component.code_point("delimiter")) {}
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    split_by_code_point(text, pieces, SplitBehaviour::kRemoved,
                        [&](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(const Component& component) : length_(component.whole("length", 5)) {
    if (length_ < 1) component.at("length").fail("is below 1");
  }
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    split(text, pieces, SplitBehaviour::kIsolated, false,
          [&](std::string_view part, std::vector<Bytes>& found) {
            for (size_t at = 0; at < part.size();) {
              const size_t begin = at;
              for (int64_t i = 0; i < length_ && at < part.size(); ++i) {
                at += utf8::length(part[at]);
              }
              found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
            }
          });
  }

 private:
  int64_t length_;
};

/// Where one script follows on another. What belongs to none (a blank) goes with what stands before it;
/// before the first letter of a script it is left out, as Python's library does.
class UnicodeScripts : public PreTokenizer {
  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    split(text, pieces, SplitBehaviour::kRemoved, true,
          [](std::string_view part, std::vector<Bytes>& found) {
            const Unicode& unicode = Unicode::instance();
            uint32_t last = 0;
            for (size_t at = 0; at < part.size();) {
              const auto begin = static_cast<uint32_t>(at);
              const uint32_t script = unicode.split_script(utf8::next(part, at));
              if (script != 0 && script != last) found.push_back({begin, begin});
              if (script != 0) last = script;
              if (!found.empty()) found.back().end = static_cast<uint32_t>(at);
            }
          });
  }
};

}  // namespace

PreTokenizerPtr read_simple_pre_tokenizer(const std::string& kind, const Component& component) {
  if (kind == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (kind == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (kind == "Whitespace") return std::make_unique<Whitespace>();
  if (kind == "Punctuation") return std::make_unique<Punctuation>(component);
  if (kind == "Digits") return std::make_unique<Digits>(component);
  if (kind == "CharDelimiterSplit") return std::make_unique<CharDelimiterSplit>(component);
  if (kind == "FixedLength") return std::make_unique<FixedLength>(component);
  if (kind == "UnicodeScripts") return std::make_unique<UnicodeScripts>();
  return nullptr;
}

}  // namespace levin::text
