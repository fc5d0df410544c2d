#pragma once
// Chats: messages that a model's chat template makes one text of.
// What Tokenizer::apply_chat_template takes and gives.
//
//   const text::Chat chat = tokenizer.apply_chat_template({{"user", "Hello"}}, {.add_generation_prompt = true});
//   chat.text;                // "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/text/encoding.h"

namespace levin::text {

struct Message {
  std::string role;  ///< such as system, user, assistant
  std::string content;
};

/// A conversation. What has more than a role and a content (tool calls, parts, reasoning) comes as JSON.
class LEVIN_API Messages {
 public:
  Messages(std::initializer_list<Message> messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span(messages.begin(), messages.size())) {}
  Messages(const std::vector<Message>& messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span<const Message>(messages)) {}
  explicit Messages(std::span<const Message> messages);
  /// A list of objects, as in Python: [{"role": "user", "content": "Hello"}].
  static Messages from_json(std::string json);

  const std::string& json() const { return json_; }

 private:
  Messages() = default;
  std::string json_;
};

/// What a template, which is foreign code, may take. Beyond it: Error "text.template.steps" and the like.
struct TemplateLimits {
  int64_t max_steps = 20'000'000;        ///< nodes, items and 64 bytes of text
  int64_t max_depth = 1000;              ///< of blocks, expressions and macros within each other
  int64_t max_output_bytes = 64 << 20;   ///< of text
  int64_t max_memory_bytes = 256 << 20;  ///< of values
};

/// As the arguments of transformers' apply_chat_template.
struct ChatOptions {
  std::string tools;      ///< a JSON list of tools' schemas; empty: none
  std::string documents;  ///< a JSON list of objects; empty: none
  std::string
      chat_template;  ///< a template in Jinja, or the name of one of the folder's; empty: the folder's
  bool add_generation_prompt = false;  ///< ends with what begins an answer
  /// The field of the last message that goes on, such as "content", so that nothing ends it; empty: none.
  std::string continue_final_message;
  bool tokenize = true;  ///< Chat::encoding, else only Chat::text
  bool return_assistant_tokens_mask = false;
  /// What is a control token of the template is text where messages, tools, documents or variables have it.
  bool sanitize_control_tokens = false;
  std::string variables;  ///< a JSON object of what else the template reads
  std::optional<int64_t>
      now;  ///< seconds since 1970 that the template takes for the time; unset: the clock's
  TemplateLimits limits;
};

struct Chat {
  std::string text;
  Encoding encoding;                    ///< without special tokens but those of the text
  std::vector<int32_t> assistant_mask;  ///< 1 for a token that the assistant said
};

}  // namespace levin::text
