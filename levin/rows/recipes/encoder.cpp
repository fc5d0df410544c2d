#include "levin/rows/recipes/encoder.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text::row {
namespace {

using nlohmann::ordered_json;

/// Rows ignore the truncation that tokenizer.json sets.
TruncationOptions no_truncation() { return {.max_length = std::numeric_limits<int32_t>::max()}; }

void fail_length(int64_t length, int64_t most) {
  LEVIN_FAIL("text.rows.length",
             "the row has {} tokens, wanted at most {}; raise max_length, shorten the row, or set "
             "truncation_mode to keep_start",
             length, most);
}

}  // namespace

Encoding Encoder::encode(const EncodeInput& input, const EncodeOptions& options) const {
  const TokenizerParts::Loan memory(parts_of(tokenizer_));
  return parts_of(tokenizer_).encode(input, options, *memory);
}

std::vector<int32_t> Encoder::whole(std::string_view text) const {
  return encode({text, std::nullopt}, {.offsets = OffsetUnit::kNone, .truncation = no_truncation()})
      .ids;
}

Encoding Encoder::cut(const EncodeInput& input, bool with_words, bool& truncated) const {
  TruncationOptions truncation = no_truncation();
  if (plan_.max_length) truncation.max_length = *plan_.max_length;
  if (plan_.options.truncation_mode == "keep_end") truncation.direction = "left";
  Encoding encoding = encode(input, {.offsets = with_words ? OffsetUnit::kBytes : OffsetUnit::kNone,
                                     .truncation = truncation});
  if (encoding.overflowing.empty()) return encoding;
  if (plan_.options.truncation_mode == "error") {
    const Encoding all =
        encode(input, {.offsets = OffsetUnit::kNone, .truncation = no_truncation()});
    fail_length(std::ssize(all.ids), *plan_.max_length);
  }
  truncated = true;
  return encoding;
}

ChatTokens Encoder::chat(std::span<const std::string> messages, const data::Record& record,
                         bool begins_answer, bool with_mask) const {
  ChatOptions options{.chat_template = plan_.options.chat_template,
                      .add_generation_prompt = begins_answer,
                      .return_assistant_tokens_mask = with_mask};
  if (record.kind("tools") == data::Record::Kind::kText) {
    options.tools = record.text("tools");
  } else if (record.has("tools")) {
    options.tools = record.json("tools");
  }
  if (record.has("chat_template_kwargs")) options.variables = record.json("chat_template_kwargs");
  const std::string json = fmt::format("[{}]", fmt::join(messages, ","));
  Chat chat = tokenizer_.apply_chat_template(Messages::from_json(json), options);
  return {std::move(chat.encoding.ids), std::move(chat.assistant_mask)};
}

void Encoder::cut(Sequence& sequence, bool& truncated) const {
  const auto length = std::ssize(sequence.tokens);
  if (!plan_.max_length || length <= *plan_.max_length) return;
  if (plan_.options.truncation_mode == "error") fail_length(length, *plan_.max_length);
  truncated = true;
  const auto excess = length - *plan_.max_length;
  auto& tokens = sequence.tokens;
  if (plan_.options.truncation_mode == "keep_end") {
    tokens.erase(tokens.begin(), tokens.begin() + excess);
  } else {
    tokens.resize(static_cast<size_t>(*plan_.max_length));
  }
}

std::vector<Sequence> Encoder::split(Sequence sequence) const {
  const auto most = static_cast<size_t>(*plan_.max_length);
  std::vector<Sequence> parts;
  for (size_t at = 0; at < sequence.tokens.size(); at += most) {
    const auto begin = sequence.tokens.begin() + static_cast<int64_t>(at);
    const auto size = static_cast<int64_t>(std::min(most, sequence.tokens.size() - at));
    parts.push_back({.tokens = {begin, begin + size}, .second = {}});
  }
  return parts;
}

std::vector<std::string> messages_of(const data::Record& record, const std::string& column) {
  const ordered_json list =
      record.has(column) ? ordered_json::parse(record.json(column)) : ordered_json();
  const bool are_messages = list.is_array() && !list.empty() &&
                            std::ranges::all_of(list, [](const auto& m) { return m.is_object(); });
  LEVIN_CHECK(are_messages, "text.rows.row", "{}: '{}' is {}, wanted a list of messages",
              record.where(), printable(column), printable(list.dump().substr(0, 60)));
  std::vector<std::string> messages;
  for (const ordered_json& given : list) {
    ordered_json message = ordered_json::object();
    for (const auto& [key, item] : given.items()) {
      const bool renamed = (key == "from" && !given.contains("role")) ||
                           (key == "value" && !given.contains("content"));
      message[!renamed ? key : key == "from" ? "role" : "content"] = item;
    }
    messages.push_back(message.dump());
  }
  return messages;
}

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void warn_of_seam(const data::Record& record) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  log::warn(
      "{}: the tokens of prompt and completion do not begin with the tokens of the prompt alone; "
      "the tokens that differ count as completion. End prompts at a token boundary, or use a chat "
      "template that renders both alike (logged once)",
      record.where());
}

}  // namespace levin::text::row
