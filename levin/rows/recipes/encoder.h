#pragma once
// Encoder: texts and chats as tokens, cut as the plan says. Not for users.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/rows/plan.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {

/// Tokens of a chat, and which of them the assistant said where that was asked for.
struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<int32_t> assistant_mask;
};

class Encoder {
 public:
  Encoder(const Plan& plan, const Tokenizer& tokenizer) : plan_(plan), tokenizer_(tokenizer) {}

  /// Returns a text of any length with the tokens around it.
  std::vector<int32_t> whole(std::string_view text) const;
  /// The same cut to max_length by the tokenizer, which keeps the tokens around it. with_words: word_ids
  /// too. Throws Error "text.rows.length".
  Encoding cut(const EncodeInput& input, bool with_words, bool& truncated) const;

  /// Encodes messages, with the row's "tools" and "chat_template_kwargs".
  ChatTokens chat(std::span<const std::string> messages, const data::Record& record,
                  bool begins_answer, bool with_mask) const;

  /// At the end that the plan says. Throws Error "text.rows.length".
  void cut(Sequence& sequence, bool& truncated) const;
  /// Into parts of max_length.
  std::vector<Sequence> split(Sequence sequence) const;

  const Plan& plan() const { return plan_; }

 private:
  Encoding encode(const EncodeInput& input, const EncodeOptions& options) const;

  const Plan& plan_;
  const Tokenizer& tokenizer_;
};

/// The messages of a column, each as JSON; "from" and "value" are taken for "role" and "content".
std::vector<std::string> messages_of(const data::Record& record, const std::string& column);

/// Returns how many tokens both have in common at the beginning.
size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b);

/// Says once that prompts end in the middle of a token.
void warn_of_seam(const data::Record& record);

}  // namespace levin::text::row
