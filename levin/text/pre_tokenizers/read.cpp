// The kinds of pre-tokenizers that leave the text unchanged; rewriting.cpp has the others.
#include <algorithm>
#include <memory>

#include "levin/text/patterns/pattern.h"
#include "levin/text/pre_tokenizers/pre_tokenizer.h"
#include "levin/text/pre_tokenizers/splits.h"
#include "levin/text/unicode/unicode.h"

namespace levin::text {
namespace {

using unicode::Unicode;

PreTokenizer pre_tokenizer_sequence(const Component& component) {
  // Both functions share the parts: with a copy for each, every Sequence within another one would double them.
  const auto parts = std::make_shared<const std::vector<PreTokenizer>>(
      read_parts(component.at("pretokenizers"), read_pre_tokenizer));
  PreTokenizer sequence;
  sequence.apply = [parts](WorkingText& text, std::vector<Piece>& pieces) {
    for (const PreTokenizer& part : *parts) part.apply(text, pieces);
  };
  sequence.needs_origin = std::ranges::any_of(*parts, &PreTokenizer::needs_origin);
  if (!parts->empty() && parts->back().apply_without_byte_letters) {
    sequence.apply_without_byte_letters = [parts](WorkingText& text, std::vector<Piece>& pieces) {
      for (size_t i = 0; i + 1 < parts->size(); ++i) (*parts)[i].apply(text, pieces);
      parts->back().apply_without_byte_letters(text, pieces);
    };
  }
  return sequence;
}

PreTokenizer read_split(const Component& component) {
  return {[pattern = std::shared_ptr(read_pattern(component.at("pattern"))),
           behaviour = read_behaviour(component.at("behavior")),
           inverted = component.flag("invert", false)](WorkingText& text,
                                                       std::vector<Piece>& pieces) {
    split(text, pieces, behaviour, inverted,
          [&](std::string_view part, std::vector<Bytes>& found) { pattern->find(part, found); });
  }};
}

/// Splits by code points with one of these traits.
PreTokenizer split_by_trait(uint32_t trait, SplitBehaviour behaviour) {
  return {[=](WorkingText& text, std::vector<Piece>& pieces) {
    const Unicode& unicode = Unicode::instance();
    split_by_code_point(text, pieces, behaviour, [&](char32_t c) { return unicode.is(c, trait); });
  }};
}

PreTokenizer read_whitespace_split(const Component&) {
  return split_by_trait(unicode::kSpace, SplitBehaviour::kRemoved);
}

PreTokenizer read_punctuation(const Component& component) {
  return split_by_trait(unicode::kBertPunctuation, component.has("behavior")
                                                       ? read_behaviour(component.at("behavior"))
                                                       : SplitBehaviour::kIsolated);
}

PreTokenizer read_digits(const Component& component) {
  const bool individual = component.flag("individual_digits", false);
  return split_by_trait(unicode::kNumeric,
                        individual ? SplitBehaviour::kIsolated : SplitBehaviour::kContiguous);
}

PreTokenizer read_char_delimiter_split(const Component& component) {
  const char32_t delimiter = component.code_point("delimiter");
  return {[=](WorkingText& text, std::vector<Piece>& pieces) {
    split_by_code_point(text, pieces, SplitBehaviour::kRemoved,
                        [&](char32_t c) { return c == delimiter; });
  }};
}

PreTokenizer read_fixed_length(const Component& component) {
  const int64_t length = component.whole("length", 5);
  if (length < 1) component.at("length").fail("is below 1");
  const auto find = [=](std::string_view part, std::vector<Bytes>& found) {
    for (size_t at = 0; at < part.size();) {
      const size_t begin = at;
      for (int64_t i = 0; i < length && at < part.size(); ++i) at += utf8::length(part[at]);
      found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
    }
  };
  return {[=](WorkingText& text, std::vector<Piece>& pieces) {
    split(text, pieces, SplitBehaviour::kIsolated, false, find);
  }};
}

/// White space is left out, and each mark of punctuation is a piece.
void split_words_of_bert(WorkingText& text, std::vector<Piece>& pieces) {
  const Unicode& unicode = Unicode::instance();
  std::vector<Piece>& made = text.scratch().pieces;
  made.clear();
  const std::string_view bytes = text.text();
  for (const Piece& piece : pieces) {
    if (piece.token >= 0) {
      made.push_back(piece);
      continue;
    }
    uint32_t begin = piece.begin;  // begin of the word
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

PreTokenizer read_bert(const Component&) { return {split_words_of_bert}; }

/// \w+|[^\w\s]+
void find_words(std::string_view part, std::vector<Bytes>& found) {
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

/// Finds where one script follows another. A character of no script (a blank) goes with the text
/// before it; before the first letter of a script it is left out, as in Python's library.
void find_scripts(std::string_view part, std::vector<Bytes>& found) {
  const Unicode& unicode = Unicode::instance();
  uint32_t last = 0;
  for (size_t at = 0; at < part.size();) {
    const auto begin = static_cast<uint32_t>(at);
    const uint32_t script = unicode.split_script(utf8::next(part, at));
    if (script != 0 && script != last) found.push_back({begin, begin});
    if (script != 0) last = script;
    if (!found.empty()) found.back().end = static_cast<uint32_t>(at);
  }
}

/// Keeps what `find` finds, and nothing else.
template <void (*find)(std::string_view, std::vector<Bytes>&)>
PreTokenizer keep_found(const Component&) {
  return {[](WorkingText& text, std::vector<Piece>& pieces) {
    split(text, pieces, SplitBehaviour::kRemoved, true, find);
  }};
}

}  // namespace

PreTokenizer read_pre_tokenizer(const Component& component) {
  return read_kind<PreTokenizer>(component, "pre-tokenizer",
                                 {{"Sequence", pre_tokenizer_sequence},
                                  {"BertPreTokenizer", read_bert},
                                  {"ByteLevel", read_byte_level},
                                  {"Whitespace", keep_found<find_words>},
                                  {"WhitespaceSplit", read_whitespace_split},
                                  {"Split", read_split},
                                  {"Punctuation", read_punctuation},
                                  {"Metaspace", read_metaspace},
                                  {"Digits", read_digits},
                                  {"UnicodeScripts", keep_found<find_scripts>},
                                  {"CharDelimiterSplit", read_char_delimiter_split},
                                  {"FixedLength", read_fixed_length}});
}

}  // namespace levin::text
