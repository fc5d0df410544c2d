// The pre-tokenizers that rewrite text: ByteLevel and Metaspace.
#include <algorithm>

#include "levin/text/patterns/pattern.h"
#include "levin/text/pre_tokenizers/kinds.h"
#include "levin/text/pre_tokenizers/splits.h"
#include "levin/text/unicode/byte_letters.h"

namespace levin::text {
namespace {

/// Writes the text anew, piece by piece: `write` puts what becomes of a piece that is no token.
template <class Write>
void rewrite(WorkingText& text, std::vector<Piece>& pieces, const Write& write) {
  text.begin();
  for (Piece& piece : pieces) {
    const auto begin = static_cast<uint32_t>(text.place());
    if (piece.token >= 0) {
      text.copy(piece.begin, piece.end);
    } else {
      write(piece);
    }
    piece.begin = begin;
    piece.end = static_cast<uint32_t>(text.place());
  }
  text.finish();
}

Bytes origin(const WorkingText& text, size_t at) {
  return text.tracked() ? text.origin(at) : Bytes{};
}

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  explicit ByteLevelPreTokenizer(const Component& component)
      : prefix_(component.flag("add_prefix_space", true)),
        splits_(component.flag("use_regex", true)) {}

  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    apply_without_byte_letters(text, pieces);
    std::string letter;
    rewrite(text, pieces, [&](const Piece& piece) {
      for (size_t at = piece.begin; at < piece.end; ++at) {
        letter.clear();
        utf8::append(letter, byte_letter(static_cast<uint8_t>(text.text()[at])));
        text.put(letter, origin(text, at));
      }
    });
  }

  void apply_without_byte_letters(WorkingText& text, std::vector<Piece>& pieces) const override {
    const auto wants_space = [&](const Piece& piece) {
      return piece.token < 0 && !piece.empty() && text.text()[piece.begin] != ' ';
    };
    if (prefix_ && std::ranges::any_of(pieces, wants_space)) {
      rewrite(text, pieces, [&](const Piece& piece) {
        if (wants_space(piece)) text.put(" ", origin(text, piece.begin));
        text.copy(piece.begin, piece.end);
      });
    }
    if (splits_) {
      split(text, pieces, SplitBehaviour::kIsolated, false,
            [](std::string_view part, std::vector<Bytes>& found) {
              gpt2_pattern().find(part, found);
            });
    }
  }

  bool ends_with_byte_letters() const override { return true; }

 private:
  bool prefix_;
  bool splits_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  enum class Prepend { kFirst, kNever, kAlways };

  explicit MetaspacePreTokenizer(const Component& component)
      : splits_(component.flag("split", true)) {
    utf8::append(sign_, component.code_point("replacement"));
    const std::string scheme = component.text("prepend_scheme", "always");
    if (scheme == "first") {
      prepend_ = Prepend::kFirst;
    } else if (scheme == "never") {
      prepend_ = Prepend::kNever;
    } else if (scheme != "always") {
      component.at("prepend_scheme").fail("is none of first, never, always");
    }
    // The older spelling.
    if (!component.flag("add_prefix_space", true)) {
      if (component.has("prepend_scheme") && prepend_ != Prepend::kNever) {
        component.fail("has add_prefix_space = false and another prepend_scheme than never");
      }
      prepend_ = Prepend::kNever;
    }
  }

  void apply(WorkingText& text, std::vector<Piece>& pieces) const override {
    rewrite(text, pieces, [&](const Piece& piece) { write(text, piece); });
    if (!splits_) return;
    split(
        text, pieces, SplitBehaviour::kMergedWithNext, false,
        [&](std::string_view part, std::vector<Bytes>& found) {
          for (size_t at = part.find(sign_); at != std::string_view::npos;
               at = part.find(sign_, at + sign_.size())) {
            found.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + sign_.size())});
          }
        });
  }

  bool needs_origin() const override { return prepend_ == Prepend::kFirst; }

 private:
  void write(WorkingText& text, const Piece& piece) const {
    if (piece.empty()) return;
    const std::string_view part = text.text().substr(piece.begin, piece.end - piece.begin);
    const bool has_sign = part.front() == ' ' || part.starts_with(sign_);
    const bool first = prepend_ == Prepend::kFirst && starts_original(text, piece.begin);
    if (!has_sign && (first || prepend_ == Prepend::kAlways)) {
      text.put(sign_, origin(text, piece.begin));
    }
    size_t at = piece.begin;
    while (true) {
      const size_t blank = std::min<size_t>(text.text().find(' ', at), piece.end);
      text.copy(at, blank);
      if (blank == piece.end) break;
      text.put(sign_, origin(text, blank));
      at = blank + 1;
    }
  }
  /// Text that is not tracked is as it was given, or has only been added to; see Tokenizer.
  static bool starts_original(const WorkingText& text, size_t at) {
    return text.tracked() ? text.origin(at).begin == 0 : text.starts_original() && at == 0;
  }

  std::string sign_;
  Prepend prepend_ = Prepend::kAlways;
  bool splits_;
};

}  // namespace

PreTokenizerPtr read_byte_level(const Component& component) {
  return std::make_unique<ByteLevelPreTokenizer>(component);
}
PreTokenizerPtr read_metaspace(const Component& component) {
  return std::make_unique<MetaspacePreTokenizer>(component);
}

}  // namespace levin::text
