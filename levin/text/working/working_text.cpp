#include "levin/text/working/working_text.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/text/utf8.h"

namespace levin::text {

void WorkingText::reset(std::string_view text, uint32_t start, bool tracked) {
  text_ = text;
  start_ = start;
  tracked_ = tracked;
  plain_ = true;
  most_ = std::min<size_t>((1U << 20) + 100 * text.size(), 1U << 31);
}

void WorkingText::trim() {
  free_long(own_text_, next_text_, origin_, next_origin_, scratch_.changes, scratch_.pieces,
            scratch_.matches, scratch_.parts, scratch_.bytes);
}

/// A text grows by a few bytes per character. Only a malicious tokenizer.json makes it grow without limit.
void WorkingText::check_size() const {
  LEVIN_CHECK(next_text_.size() <= most_, "text.length",
              "tokenizer.json expands a text to more than {} bytes", most_);
}

Bytes WorkingText::origin(size_t at) const {
  if (!plain_) return origin_[at];
  while (at > 0 && utf8::is_inner(text_[at])) --at;
  const auto begin = static_cast<uint32_t>(start_ + at);
  return {begin, begin + static_cast<uint32_t>(utf8::length(text_[at]))};
}

void WorkingText::begin() {
  next_text_.clear();
  next_origin_.clear();
}

void WorkingText::put_code_point(char32_t c, Bytes origin) {
  utf8::append(next_text_, c);
  if (tracked_) next_origin_.resize(next_text_.size(), origin);
}

void WorkingText::put(std::string_view bytes, Bytes origin) {
  next_text_ += bytes;
  check_size();
  if (tracked_) next_origin_.resize(next_text_.size(), origin);
}

void WorkingText::copy(size_t begin, size_t end) {
  next_text_ += text_.substr(begin, end - begin);
  check_size();
  if (!tracked_) return;
  if (!plain_) {
    next_origin_.insert(next_origin_.end(), origin_.begin() + static_cast<std::ptrdiff_t>(begin),
                        origin_.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
  size_t place = next_origin_.size();
  next_origin_.resize(next_text_.size());
  for (size_t at = begin; at < end;) {
    const size_t length = utf8::length(text_[at]);
    const auto from = static_cast<uint32_t>(start_ + at);
    const Bytes origin{from, from + static_cast<uint32_t>(length)};
    for (size_t i = 0; i < length; ++i) next_origin_[place++] = origin;
    at += length;
  }
}

void WorkingText::finish() {
  check_size();
  own_text_.swap(next_text_);
  text_ = own_text_;
  if (!tracked_) return;
  origin_.swap(next_origin_);
  plain_ = false;
}

void WorkingText::transform(const std::vector<Change>& changes, size_t dropped) {
  begin();
  if (!tracked_) {
    for (const Change& change : changes) utf8::append(next_text_, change.c);
    finish();
    return;
  }
  // Text that was inserted at the front is not part of the original, and stays.
  size_t at = 0;
  while (!plain_ && at < text_.size() && is_bare(origin_[at])) ++at;
  copy(0, at);
  const auto skip = [&](size_t count) {
    for (; count > 0 && at < text_.size(); --count) at += utf8::length(text_[at]);
  };
  skip(dropped);
  for (const Change& change : changes) {
    Bytes from{start_, start_};
    if (change.replaces > 0) {
      if (at > 0) from = origin(at - 1);
    } else if (at < text_.size()) {
      from = origin(at);
      skip(1 + static_cast<size_t>(-change.replaces));
    }
    put_code_point(change.c, from);
  }
  finish();
}

}  // namespace levin::text
