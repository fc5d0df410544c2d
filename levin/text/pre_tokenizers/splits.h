#pragma once
// How a pattern that splits turns its matches into pieces. Not for users.
//
//   split(text, pieces, SplitBehaviour::kIsolated, false, [&](std::string_view part, auto& found) { ... });

#include <string>
#include <string_view>
#include <vector>

#include "levin/base/text/utf8.h"
#include "levin/text/reading/component.h"
#include "levin/text/working/working_text.h"

namespace levin::text {

enum class SplitBehaviour {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

/// Reads the text of a component, such as "MergedWithNext".
SplitBehaviour read_behaviour(const Component& component);

/// Appends the pieces that the parts make, which follow on each other. Empty ones are left out.
void put_pieces(std::vector<Part>& parts, SplitBehaviour behaviour, uint32_t base,
                std::vector<Piece>& pieces);

/// Splits each piece that is no token by what `find` appends to a list of matches.
template <class Find>
void split(WorkingText& working, std::vector<Piece>& pieces, SplitBehaviour behaviour,
           bool inverted, const Find& find) {
  const std::string_view text = working.text();
  std::vector<Piece>& made = working.scratch().pieces;
  std::vector<Bytes>& matches = working.scratch().matches;
  std::vector<Part>& parts = working.scratch().parts;
  made.clear();
  // The most common behaviours: each match and each gap is a piece, or one of both kinds is left
  // out.
  const bool plain =
      behaviour == SplitBehaviour::kIsolated || behaviour == SplitBehaviour::kRemoved;
  const bool keeps_matches = behaviour == SplitBehaviour::kIsolated || inverted;
  const bool keeps_gaps = behaviour == SplitBehaviour::kIsolated || !inverted;
  for (const Piece& piece : pieces) {
    if (piece.token >= 0) {
      made.push_back(piece);
      continue;
    }
    matches.clear();
    find(text.substr(piece.begin, piece.end - piece.begin), matches);
    uint32_t at = 0;
    const uint32_t size = piece.end - piece.begin;
    if (plain) {
      for (const Bytes match : matches) {
        if (keeps_gaps && match.begin > at) {
          made.push_back({piece.begin + at, piece.begin + match.begin});
        }
        if (keeps_matches && match.end > match.begin) {
          made.push_back({piece.begin + match.begin, piece.begin + match.end});
        }
        at = match.end;
      }
      if (keeps_gaps && size > at) made.push_back({piece.begin + at, piece.end});
      continue;
    }
    parts.clear();
    for (const Bytes match : matches) {
      if (match.begin > at) parts.push_back({{at, match.begin}, inverted});
      parts.push_back({match, !inverted});
      at = match.end;
    }
    if (size > at) parts.push_back({{at, size}, inverted});
    put_pieces(parts, behaviour, piece.begin, made);
  }
  pieces.swap(made);
}

/// The same by code points that `matches` says yes to: each is a match of its own.
template <class Matches>
void split_by_code_point(WorkingText& text, std::vector<Piece>& pieces, SplitBehaviour behaviour,
                         const Matches& matches) {
  split(text, pieces, behaviour, false, [&](std::string_view part, std::vector<Bytes>& found) {
    for (size_t at = 0; at < part.size();) {
      const size_t begin = at;
      if (matches(utf8::next(part, at))) {
        found.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
      }
    }
  });
}

}  // namespace levin::text
