// Truncation of one text or a pair, and padding of a batch.
#include <algorithm>

#include "levin/base/check.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {
namespace {

Side side_of(const std::string& direction) {
  return direction == "left" ? Side::kLeft : Side::kRight;
}

void cut(Draft& draft, size_t length, const TruncationOptions& options) {
  if (length >= draft.size()) return;
  const auto stride = static_cast<size_t>(options.stride);
  LEVIN_CHECK(length == 0 || stride < length, "text.truncation",
              "truncation leaves {} tokens of a text, but the stride is {}; set a smaller stride",
              length, stride);
  truncate(draft, length, stride, side_of(options.direction));
}

/// The shorter one keeps its tokens, up to half of the length.
std::pair<size_t, size_t> shared_lengths(size_t first, size_t second, size_t length) {
  const bool swapped = first > second;
  size_t shorter = std::min(first, second);
  size_t longer = shorter > length ? shorter : std::max(shorter, length - shorter);
  if (shorter + longer > length) {
    shorter = length / 2;
    longer = shorter + length % 2;
  }
  return swapped ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

}  // namespace

void TokenizerParts::truncate_all(std::vector<Draft>& drafts, const TruncationOptions& options,
                                  bool add_special_tokens) const {
  auto length = static_cast<size_t>(options.max_length);
  if (add_special_tokens && post_processor) {
    length -= std::min(length, post_processor->added(drafts.size() > 1));
  }
  if (length == 0) {
    for (Draft& draft : drafts) cut(draft, 0, options);
    return;
  }
  size_t total = 0;
  for (const Draft& draft : drafts) total += draft.size();
  if (total <= length) return;
  if (options.strategy == "longest_first") {
    if (drafts.size() == 1) {
      cut(drafts[0], length, options);
      return;
    }
    const auto [first, second] = shared_lengths(drafts[0].size(), drafts[1].size(), length);
    cut(drafts[0], first, options);
    cut(drafts[1], second, options);
    return;
  }
  const size_t place = options.strategy == "only_first" ? 0 : 1;
  LEVIN_CHECK(
      place < drafts.size(), "text.truncation",
      "got the truncation strategy only_second, but there is only one text; use longest_first");
  const size_t excess = total - length;
  LEVIN_CHECK(drafts[place].size() > excess, "text.truncation",
              "truncation must remove {} tokens from the {} text, but it has {}; use longest_first",
              excess, place == 0 ? "first" : "second", drafts[place].size());
  cut(drafts[place], drafts[place].size() - excess, options);
}

void TokenizerParts::pad(std::span<Encoding> encodings, bool tracked) const {
  if (!padding || encodings.empty()) return;
  size_t length = 0;
  if (padding->length) {
    length = static_cast<size_t>(*padding->length);
  } else {
    for (const Encoding& encoding : encodings) length = std::max(length, encoding.ids.size());
  }
  const auto multiple = static_cast<size_t>(padding->pad_to_multiple_of.value_or(0));
  if (multiple > 0 && length % multiple > 0) length += multiple - length % multiple;
  const auto fill = [&](auto& list, int32_t value, size_t count) {
    list.insert(padding->direction == "left" ? list.begin() : list.end(), count,
                typename std::remove_reference_t<decltype(list)>::value_type{value});
  };
  const auto pad_one = [&](auto& self, Encoding& encoding) -> void {
    for (Encoding& more : encoding.overflowing) self(self, more);
    if (encoding.ids.size() >= length) return;
    const size_t count = length - encoding.ids.size();
    fill(encoding.ids, padding->pad_id, count);
    fill(encoding.type_ids, padding->pad_type_id, count);
    fill(encoding.attention_mask, 0, count);
    fill(encoding.special_tokens_mask, 1, count);
    if (!tracked) return;
    fill(encoding.offsets, 0, count);
    fill(encoding.word_ids, -1, count);
    fill(encoding.sequence_ids, -1, count);
  };
  for (Encoding& encoding : encodings) pad_one(pad_one, encoding);
}

}  // namespace levin::text
