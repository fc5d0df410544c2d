// Scanners for the expressions that the tokenizers of GPT-2, Llama 3, Qwen, GPT-4o, Mistral and CLIP split by. Each
// gives what Oniguruma gives: alternatives are tried in their order, and what is greedy gives back what it must.
#include "levin/text/patterns/pattern.h"
#include "levin/text/patterns/scanned_text.h"

namespace levin::text {
namespace {

using namespace scan;  // NOLINT(google-build-using-namespace): the kinds of code points

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
struct Gpt2 {
  static size_t match(const ScannedText& text, size_t at) {
    if (const size_t end = text.contraction(at, false); end > at) return end;
    size_t word = at;
    if (text.byte(at) == ' ' && !text.ends(at + 1)) ++word;
    const uint8_t kind = text.kind_at(word);
    if (kind & kLetter) return text.run(word, kLetter);
    if (kind & kNumber) return text.run(word, kNumber);
    if (!(kind & kSpace)) return text.run_of_others(word);
    return text.spaces(at);
  }
};

/// (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,n}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <size_t kDigits>
struct Llama3 {
  static size_t match(const ScannedText& text, size_t at) {
    if (const size_t end = text.contraction(at, true); end > at) return end;
    const uint8_t kind = text.kind_at(at);
    if (kind & kLetter) return text.run(at, kLetter);
    if (kind & kNumber) return text.run(at, kNumber, kDigits);
    const size_t next = text.after(at);
    if (!(kind & kBreak) && !text.ends(next) && (text.kind_at(next) & kLetter)) {
      return text.run(next, kLetter);
    }
    return rest(text, at, kind, "\r\n");
  }

  /// Matches from the fourth alternative on.
  static size_t rest(const ScannedText& text, size_t at, uint8_t kind, std::string_view tail) {
    const size_t others = text.byte(at) == ' ' ? at + 1 : at;
    if (!(kind & kSpace) || others > at) {
      const size_t end = text.run_of_others(others);
      if (end > others) return text.run_of_bytes(end, tail);
    }
    if (const size_t end = text.line_breaks(at); end > at) return end;
    return text.spaces(at);
  }
};

/// GPT-4o's: a word ends where a large letter follows a small one; with contractions, or without (Mistral's).
template <size_t kDigits, bool kContractions>
struct Gpt4o {
  static size_t match(const ScannedText& text, size_t at) {
    const uint8_t kind = text.kind_at(at);
    const bool may_lead = !(kind & (kLetter | kNumber | kBreak));
    const size_t next = text.after(at);
    for (const auto& word : {small_end, large_end}) {
      size_t end = may_lead ? word(text, next) : next;
      if (!may_lead || end == next) {
        end = word(text, at);
        if (end == at) continue;
      }
      return kContractions ? text.contraction(end, true) : end;
    }
    if (kind & kNumber) return text.run(at, kNumber, kDigits);
    return Llama3<kDigits>::rest(text, at, kind, "\r\n/");
  }

  /// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at the place; the place where it does not match.
  static size_t small_end(const ScannedText& text, size_t at) {
    const size_t large = text.run(at, kUpper);
    const size_t end = text.run(large, kLower);
    if (end > large) return end;
    // One code point that is both is given back, and ends the word.
    for (size_t back = large; back > at;) {
      const size_t last = text.before(back);
      if (text.kind_at(last) & kLower) return back;
      back = last;
    }
    return at;
  }
  /// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*
  static size_t large_end(const ScannedText& text, size_t at) {
    const size_t large = text.run(at, kUpper);
    return large == at ? at : text.run(large, kLower);
  }
};

/// <\|startoftext\|>|<\|endoftext\|>|'s|...|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+; nothing at a space.
struct Clip {
  static size_t match(const ScannedText& text, size_t at) {
    for (const std::string_view token : {"<|startoftext|>", "<|endoftext|>"}) {
      size_t same = 0;
      while (same < token.size() && text.byte(at + same) == token[same]) ++same;
      if (same == token.size()) return at + same;
    }
    if (const size_t end = text.contraction(at, false); end > at) return end;
    const uint8_t kind = text.kind_at(at);
    if (kind & kLetter) return text.run(at, kLetter);
    if (kind & kNumber) return text.after(at);
    return text.run_of_others(at);
  }
};

template <class Rule>
class Scanner : public Pattern {
  void find(std::string_view text, std::vector<Bytes>& matches) const override {
    const ScannedText reader(text);
    for (size_t at = 0; at < text.size();) {
      const size_t end = Rule::match(reader, at);
      if (end > at) {
        matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
        at = end;
      } else {
        at = reader.after(at);
      }
    }
  }
};

struct Known {
  std::string_view expression;
  PatternPtr (*make)();
};

template <class Rule>
PatternPtr make() {
  return std::make_unique<Scanner<Rule>>();
}

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

#define LEVIN_LARGE R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LEVIN_SMALL R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LEVIN_LEAD R"([^\r\n\p{L}\p{N}]?)"
#define LEVIN_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LEVIN_REST R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LEVIN_REST_4O R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr Known kKnown[] = {
    {kGpt2, make<Gpt2>},
    {LEVIN_CONTRACTION "|" LEVIN_LEAD R"(\p{L}+|\p{N}{1,3})" LEVIN_REST, make<Llama3<3>>},
    {LEVIN_CONTRACTION "|" LEVIN_LEAD R"(\p{L}+|\p{N})" LEVIN_REST, make<Llama3<1>>},
    {LEVIN_LEAD LEVIN_LARGE "*" LEVIN_SMALL "+" LEVIN_CONTRACTION "?|" LEVIN_LEAD LEVIN_LARGE
                            "+" LEVIN_SMALL "*" LEVIN_CONTRACTION R"(?|\p{N}{1,3})" LEVIN_REST_4O,
     make<Gpt4o<3, true>>},
    {LEVIN_LEAD LEVIN_LARGE "*" LEVIN_SMALL "+|" LEVIN_LEAD LEVIN_LARGE "+" LEVIN_SMALL
                            R"(*|\p{N})" LEVIN_REST_4O,
     make<Gpt4o<1, false>>},
    {R"(<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+)",
     make<Clip>},
};

#undef LEVIN_LARGE
#undef LEVIN_SMALL
#undef LEVIN_LEAD
#undef LEVIN_CONTRACTION
#undef LEVIN_REST
#undef LEVIN_REST_4O

}  // namespace

PatternPtr known_scanner(std::string_view expression) {
  for (const Known& known : kKnown) {
    if (known.expression == expression) return known.make();
  }
  return nullptr;
}

const Pattern& gpt2_pattern() {
  static const Scanner<Gpt2> pattern;
  return pattern;
}

}  // namespace levin::text
