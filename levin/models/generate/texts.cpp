#include "levin/models/generate/texts.h"

#include <algorithm>
#include <utility>

namespace levin::models {

WrittenText::WrittenText(const text::Tokenizer& tokenizer, std::vector<int32_t> prompt,
                         std::span<const std::string> stop_strings, Listener listener)
    : tokenizer_(tokenizer),
      ids_(std::move(prompt)),
      prompt_(ids_.size()),
      stop_strings_(stop_strings),
      listener_(std::move(listener)),
      stream_(tokenizer.decode_stream()),
      all_stream_(tokenizer.decode_stream({.skip_special_tokens = false})) {
  for (const int32_t id : ids_) {
    if (listener_) stream_.step(id);
    if (!stop_strings_.empty()) tail_ += all_stream_.step(id).value_or("");
  }
}

bool WrittenText::add(int32_t id) {
  ids_.push_back(id);
  if (listener_) give(stream_.step(id).value_or(""));
  if (stop_strings_.empty()) return false;
  const std::string piece = all_stream_.step(id).value_or("");
  if (piece.empty()) return false;
  const size_t before = tail_.size();
  tail_ += piece;
  size_t longest = 0;
  for (const std::string& stop : stop_strings_) {
    const size_t begin = before >= stop.size() ? before - stop.size() + 1 : 0;
    if (tail_.find(stop, begin) != std::string::npos) return true;
    longest = std::max(longest, stop.size());
  }
  if (tail_.size() >= longest) tail_.erase(0, tail_.size() - (longest - 1));
  return false;
}

std::string WrittenText::finish() {
  const std::string before = tokenizer_.decode(std::span(ids_).first(prompt_));
  std::string all = tokenizer_.decode(ids_);
  // An answer may change how the prompt ends, as where the decoder tidies up blanks.
  all = all.starts_with(before) ? all.substr(before.size())
                                : tokenizer_.decode(std::span(ids_).subspan(prompt_));
  if (listener_ && given_ < all.size()) give(std::string_view(all).substr(given_));
  return all;
}

void WrittenText::give(std::string_view piece) {
  if (piece.empty()) return;
  given_ += piece.size();
  listener_(piece);
}

}  // namespace levin::models
