#pragma once
// WrittenText: the text of a row while its tokens come in: pieces for who listens, strings that end it.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/text/tokenizer.h"

namespace levin::models {

class LEVIN_API WrittenText {
 public:
  using Listener = std::function<void(std::string_view piece)>;

  /// The tokenizer and stop_strings have to outlive it. The prompt, without padding, is the context
  /// in which new tokens are decoded; its text is not given out.
  WrittenText(const text::Tokenizer& tokenizer, std::vector<int32_t> prompt,
              std::span<const std::string> stop_strings, Listener listener);

  /// Returns whether the token completes one of stop_strings, which may begin in earlier tokens.
  bool add(int32_t id);
  /// Returns the full text after the prompt; the listener gets the rest of it.
  std::string finish();

 private:
  void give(std::string_view piece);

  const text::Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t prompt_;
  std::span<const std::string> stop_strings_;
  Listener listener_;
  text::DecodeStream stream_;      // without special tokens
  text::DecodeStream all_stream_;  // with them, for stop_strings
  size_t given_ = 0;               // bytes
  std::string tail_;               // the last bytes in which one of stop_strings may begin
};

}  // namespace levin::models
