// The pre-tokenizers that rewrite text: ByteLevel and Metaspace.
#include <algorithm>

#include "levin/text/patterns/pattern.h"
#include "levin/text/pre_tokenizers/pre_tokenizer.h"
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

/// Text that is not tracked is as it was given, or has only been added to; see Tokenizer.
bool starts_original(const WorkingText& text, size_t at) {
  return text.tracked() ? text.origin(at).begin == 0 : text.starts_original() && at == 0;
}

enum class Prepend { kFirst, kNever, kAlways };

Prepend read_prepend(const Component& component) {
  Prepend prepend = Prepend::kAlways;
  const std::string scheme = component.text("prepend_scheme", "always");
  if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Prepend::kNever;
  } else if (scheme != "always") {
    component.at("prepend_scheme").fail("is not one of first, never, always");
  }
  // The older spelling.
  if (!component.flag("add_prefix_space", true)) {
    if (component.has("prepend_scheme") && prepend != Prepend::kNever) {
      component.fail("has add_prefix_space = false, but prepend_scheme is not never");
    }
    prepend = Prepend::kNever;
  }
  return prepend;
}

void write_signs(WorkingText& text, const Piece& piece, std::string_view sign, Prepend prepend) {
  if (piece.empty()) return;
  const std::string_view part = text.text().substr(piece.begin, piece.end - piece.begin);
  const bool has_sign = part.front() == ' ' || part.starts_with(sign);
  const bool first = prepend == Prepend::kFirst && starts_original(text, piece.begin);
  if (!has_sign && (first || prepend == Prepend::kAlways)) {
    text.put(sign, origin(text, piece.begin));
  }
  size_t at = piece.begin;
  while (true) {
    const size_t blank = std::min<size_t>(text.text().find(' ', at), piece.end);
    text.copy(at, blank);
    if (blank == piece.end) break;
    text.put(sign, origin(text, blank));
    at = blank + 1;
  }
}

}  // namespace

PreTokenizer read_byte_level(const Component& component) {
  const bool prefix = component.flag("add_prefix_space", true);
  const bool splits = component.flag("use_regex", true);
  const auto without_letters = [=](WorkingText& text, std::vector<Piece>& pieces) {
    const auto wants_space = [&](const Piece& piece) {
      return piece.token < 0 && !piece.empty() && text.text()[piece.begin] != ' ';
    };
    if (prefix && std::ranges::any_of(pieces, wants_space)) {
      rewrite(text, pieces, [&](const Piece& piece) {
        if (wants_space(piece)) text.put(" ", origin(text, piece.begin));
        text.copy(piece.begin, piece.end);
      });
    }
    if (splits) {
      split(text, pieces, SplitBehaviour::kIsolated, false,
            [](std::string_view part, std::vector<Bytes>& found) {
              gpt2_pattern().find(part, found);
            });
    }
  };
  const auto apply = [=](WorkingText& text, std::vector<Piece>& pieces) {
    without_letters(text, pieces);
    std::string letter;
    rewrite(text, pieces, [&](const Piece& piece) {
      for (size_t at = piece.begin; at < piece.end; ++at) {
        letter.clear();
        utf8::append(letter, byte_letter(static_cast<uint8_t>(text.text()[at])));
        text.put(letter, origin(text, at));
      }
    });
  };
  return {.apply = apply, .apply_without_byte_letters = without_letters};
}

PreTokenizer read_metaspace(const Component& component) {
  const bool splits = component.flag("split", true);
  std::string sign;
  utf8::append(sign, component.code_point("replacement"));
  const Prepend prepend = read_prepend(component);
  const auto apply = [=](WorkingText& text, std::vector<Piece>& pieces) {
    rewrite(text, pieces, [&](const Piece& piece) { write_signs(text, piece, sign, prepend); });
    if (!splits) return;
    split(text, pieces, SplitBehaviour::kMergedWithNext, false,
          [&](std::string_view part, std::vector<Bytes>& found) {
            for (size_t at = part.find(sign); at != std::string_view::npos;
                 at = part.find(sign, at + sign.size())) {
              found.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + sign.size())});
            }
          });
  };
  return {apply, prepend == Prepend::kFirst};
}

}  // namespace levin::text
