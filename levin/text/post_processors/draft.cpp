#include "levin/text/post_processors/draft.h"

#include <algorithm>

namespace levin::text {
namespace {

/// Calls visit with each list of two drafts.
template <class Visit>
void for_each_list(Draft& a, const Draft& b, const Visit& visit) {
  visit(a.own.ids, b.own.ids);
  visit(a.own.type_ids, b.own.type_ids);
  visit(a.own.attention_mask, b.own.attention_mask);
  visit(a.own.special_tokens_mask, b.own.special_tokens_mask);
  visit(a.own.offsets, b.own.offsets);
  visit(a.own.word_ids, b.own.word_ids);
  visit(a.own.sequence_ids, b.own.sequence_ids);
  visit(a.blanks, b.blanks);
}

Draft part_of(const Draft& draft, size_t begin, size_t end) {
  Draft part = draft.like();
  for_each_list(part, draft, [&](auto& to, const auto& from) {
    if (from.empty()) return;
    to.assign(from.begin() + static_cast<std::ptrdiff_t>(begin),
              from.begin() + static_cast<std::ptrdiff_t>(end));
  });
  return part;
}

void join_alone(Draft& draft, const Draft& other) {
  for_each_list(draft, other,
                [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); });
}

Draft without_overflow(const Draft& draft) { return part_of(draft, 0, draft.size()); }

}  // namespace

Draft Draft::like() const {
  Draft empty;
  empty.tracked = tracked;
  empty.has_blanks = has_blanks;
  return empty;
}

void Draft::insert_special(size_t at, std::span<const int32_t> ids, int32_t type) {
  const auto place = static_cast<std::ptrdiff_t>(at);
  const auto fill = [&](auto& list, auto value) {
    list.insert(list.begin() + place, ids.size(), value);
  };
  own.ids.insert(own.ids.begin() + place, ids.begin(), ids.end());
  fill(own.type_ids, type);
  fill(own.attention_mask, 1);
  fill(own.special_tokens_mask, 1);
  if (has_blanks) fill(blanks, Blanks{});
  if (!tracked) return;
  fill(own.offsets, Offset{});
  fill(own.word_ids, -1);
  fill(own.sequence_ids, -1);
}

void truncate(Draft& draft, size_t length, size_t stride, Side side) {
  const size_t size = draft.size();
  if (length >= size) return;
  if (length == 0) {
    Draft empty = draft.like();
    empty.overflowing.push_back(std::move(draft));
    draft = std::move(empty);
    return;
  }
  const size_t step = length - std::min(stride, length - 1);
  std::vector<Draft> parts;
  for (size_t done = 0;; done += step) {
    const size_t reach = std::min(done + length, size);
    parts.push_back(side == Side::kRight ? part_of(draft, done, reach)
                                         : part_of(draft, size - reach, size - done));
    if (reach == size) break;
  }
  draft = std::move(parts.front());
  draft.overflowing.assign(std::make_move_iterator(parts.begin() + 1),
                           std::make_move_iterator(parts.end()));
}

void join(Draft& draft, Draft other) {
  if (draft.size() == 0 && draft.overflowing.empty()) {
    draft = std::move(other);
    return;
  }
  std::vector<Draft> overflowing;
  for (const Draft& own : draft.overflowing) {
    overflowing.push_back(own);
    join(overflowing.back(), other);
    overflowing.back().overflowing.clear();
    for (const Draft& more : other.overflowing) {
      overflowing.push_back(own);
      join_alone(overflowing.back(), more);
    }
  }
  for (const Draft& more : other.overflowing) {
    overflowing.push_back(without_overflow(draft));
    join_alone(overflowing.back(), more);
  }
  join_alone(draft, other);
  draft.overflowing = std::move(overflowing);
}

Encoding finished(Draft draft) {
  Encoding encoding = std::move(draft.own);
  encoding.overflowing.reserve(draft.overflowing.size());
  for (Draft& more : draft.overflowing) encoding.overflowing.push_back(finished(std::move(more)));
  return encoding;
}

}  // namespace levin::text
