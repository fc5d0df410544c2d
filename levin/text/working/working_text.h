#pragma once
// WorkingText: text that normalizers and pre-tokenizers work on. It knows the place in the original
// of each byte. Not for users. Without a request for offsets nothing is tracked.
//
//   WorkingText text;
//   text.reset("Ab", 0, /*tracked=*/true);
//   text.transform({{'a', 0}, {'b', 0}});
//   text.origin(1);                        // {1, 2}

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "levin/text/unicode/normal_forms.h"

namespace levin::text {

using unicode::Change;

/// Bytes from begin on, before end.
struct Bytes {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t size() const { return end - begin; }
};

/// A part of the working text; with a token where it is an added one already.
struct Piece {
  uint32_t begin = 0;
  uint32_t end = 0;
  int32_t token = -1;
  bool empty() const { return begin == end; }
};

/// A part of a piece, and whether the pattern that splits it matched it.
struct Part {
  Bytes bytes;
  bool is_match;
};

/// Gives the memory of a long text back: of each list that has room for more than 65,536 items.
template <class... Lists>
void free_long(Lists&... lists) {
  constexpr size_t kMost = 1U << 16;
  ((lists.capacity() > kMost ? Lists().swap(lists) : void()), ...);
}

/// Lists that one step works with at a time, kept from text to text so that a short text allocates none.
struct Scratch {
  std::vector<Change> changes;
  std::vector<Piece> pieces;
  std::vector<Bytes> matches;
  std::vector<Part> parts;
  std::string bytes;
};

class WorkingText {
 public:
  /// Begins with the part of the original that starts at `start`; `text` has to outlive this.
  void reset(std::string_view text, uint32_t start, bool tracked);

  std::string_view text() const { return text_; }
  bool tracked() const { return tracked_; }
  /// Returns the original's bytes that this byte came from. For tracked text only.
  Bytes origin(size_t at) const;
  /// Returns whether the text begins at the original's first byte.
  bool starts_original() const { return start_ == 0; }
  /// Returns the place in the original of text that has no origin.
  Bytes front() const { return {start_, start_}; }
  /// Returns whether a transformation without changes leaves everything as it is. Python's library
  /// doubles the text that a pattern for nothing has put before the text, and so does this.
  bool stays() const { return !tracked_ || plain_ || origin_.empty() || !is_bare(origin_.front()); }

  /// Returns the scratch memory, with the previous step's contents.
  Scratch& scratch() { return scratch_; }
  /// Gives the memory of a long text back.
  void trim();
  /// The scratch's changes, empty and with room for one a byte.
  std::vector<Change>& changes() {
    scratch_.changes.clear();
    scratch_.changes.reserve(text_.size());
    return scratch_.changes;
  }

  /// Applies the changes of the full text's code points; the first `dropped` of them are gone.
  void transform(const std::vector<Change>& changes, size_t dropped = 0);

  // A new text, piece by piece: begin, then any of copy and put, then finish.
  void begin();
  /// Returns the place of the next byte.
  size_t place() const { return next_text_.size(); }
  void copy(size_t begin, size_t end);
  void put(std::string_view bytes, Bytes origin);
  void finish();

 private:
  static bool is_bare(Bytes origin) { return origin.begin == origin.end; }
  void put_code_point(char32_t c, Bytes origin);
  void check_size() const;

  std::string_view text_;
  bool tracked_ = false;
  bool plain_ = true;          // text_ is the original's, from start_ on
  size_t most_ = 0;            // bytes that it may grow to
  uint32_t start_ = 0;         // place in the original of text without an origin
  std::vector<Bytes> origin_;  // origin of each byte, if tracked and not plain
  std::string own_text_;
  std::string next_text_;
  std::vector<Bytes> next_origin_;
  Scratch scratch_;
};

}  // namespace levin::text
