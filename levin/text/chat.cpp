#include <algorithm>
#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/control_tokens.h"
#include "levin/text/template/interpreter.h"
#include "levin/text/template/template.h"
#include "levin/text/template/values/json_text.h"
#include "levin/text/template/values/python_text.h"
#include "levin/text/tokenizer.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Run;
using jinja::Value;

constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking",
                                                        "reasoning"};
constexpr std::string_view kTag = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Leaves out fields that are null, and gives the reasoning under all of its names.
Value as_templates_read(Run& run, const Value& message) {
  Dict& made = *run.dict();
  const Value* reasoning = nullptr;
  for (const std::string_view name : kReasoning) {
    const Value* found = message.dict()->find(name);
    if (reasoning == nullptr && found != nullptr && !found->is_none()) reasoning = found;
  }
  if (reasoning != nullptr) run.put(made, run.text("thinking"), *reasoning);
  for (const auto& [key, value] : message.dict()->items) {
    if (!value.is_none()) run.put(made, key, value);
  }
  if (reasoning != nullptr) run.put(made, run.text("reasoning_content"), *reasoning);
  return Value(&made);
}

List& read_messages(Run& run, const Messages& messages) {
  const Value all = jinja::read_json(run, messages.json(), "messages");
  LEVIN_CHECK(all.list() != nullptr, "text.chat", "messages are {}, wanted a list of objects",
              jinja::type_name(all));
  LEVIN_CHECK(!all.list()->items.empty(), "text.chat", "got no messages, wanted at least one");
  for (Value& message : all.list()->items) {
    LEVIN_CHECK(message.dict() != nullptr, "text.chat",
                "a message is {}, wanted an object with role and content",
                jinja::type_name(message));
    message = as_templates_read(run, message);
  }
  return *all.list();
}

/// Puts a tag behind the last message, so that it is found again in the text.
class Continued {
 public:
  Continued(Run& run, List& messages, const std::string& field, std::string_view source) {
    Dict& last = *messages.items.back().dict();
    const Value* found = last.find(field);
    LEVIN_CHECK(found != nullptr, "text.chat",
                "got continue_final_message, but the last message has no '{}' to continue",
                printable(field));
    const Value value = *found;
    std::vector<std::string_view> fields = {field};
    if (std::ranges::count(kReasoning, field) > 0) {
      fields.clear();
      for (const std::string_view name : kReasoning) {
        const Value* other = last.find(name);
        if (other != nullptr && jinja::equal(*other, value)) fields.push_back(name);
      }
    }
    LEVIN_CHECK(std::ranges::any_of(
                    fields, [&](auto name) { return source.find(name) != std::string_view::npos; }),
                "text.chat",
                "got continue_final_message for '{}', but the chat template does not read it",
                printable(field));
    if (value.list() != nullptr) {
      tag_part(run, *value.list());
      return;
    }
    LEVIN_CHECK(value.is_text(), "text.chat",
                "got continue_final_message, but the field to continue is not a string");
    message_ = std::string(value.text());
    for (const std::string_view name : fields)
      last.put(run.text(std::string(name)), run.text(message_ + std::string(kTag)));
  }

  std::string cut(std::string text) const {
    const std::string_view tag = jinja::strip(kTag);
    const size_t at = text.rfind(tag);
    const bool whole =
        at != std::string::npos && text.find(jinja::strip(message_)) != std::string::npos;
    LEVIN_CHECK(whole, "text.chat",
                "got continue_final_message, but the last message does not appear in the text that "
                "the chat template renders; the template changes it");
    const bool keeps_blank = std::string_view(text).substr(at).starts_with(kTag);
    text.resize(at);
    return keeps_blank ? text : std::string(jinja::strip(text, false, true));
  }

 private:
  void tag_part(Run& run, const List& parts) {
    for (auto part = parts.items.rbegin(); part != parts.items.rend(); ++part) {
      const Value* text = part->dict() == nullptr ? nullptr : part->dict()->find("text");
      if (text == nullptr) continue;
      LEVIN_CHECK(
          text->is_text(), "text.chat",
          "got continue_final_message, but the last text part of the message is not a string");
      message_ = std::string(text->text());
      part->dict()->put(run.text("text"), run.text(message_ + std::string(kTag)));
      return;
    }
    LEVIN_FAIL("text.chat",
               "got continue_final_message, but the last message has no text part to continue");
  }

  std::string message_;
};

/// Marks tokens as transformers does: from the first token with the first character to the first
/// token with the last one.
std::vector<int32_t> mask_of(const Encoding& encoding, std::string_view text,
                             const std::vector<std::pair<size_t, size_t>>& generations) {
  std::vector<int32_t> mask(encoding.ids.size(), 0);
  const auto token_at = [&](size_t place) -> std::optional<size_t> {
    for (size_t i = 0; i < encoding.offsets.size(); ++i) {
      const Offset& offset = encoding.offsets[i];
      if (encoding.sequence_ids[i] == 0 && static_cast<int64_t>(place) >= offset.begin &&
          static_cast<int64_t>(place) < offset.end)
        return i;
    }
    return std::nullopt;
  };
  for (const auto& [begin, end] : generations) {
    const auto first = token_at(begin);
    if (!first) break;
    const auto last = end == 0 ? std::nullopt : token_at(utf8::before(text, end));
    const size_t behind = last && *last > 0 ? *last + 1 : mask.size();
    for (size_t i = *first; i < behind; ++i) mask[i] = 1;
  }
  return mask;
}

}  // namespace

Messages::Messages(std::span<const Message> messages) {
  Run run{TemplateLimits{}};
  std::vector<Value> all;
  for (const Message& message : messages) {
    utf8::check(message.role);
    utf8::check(message.content);
    Dict& made = *run.dict();
    run.put(made, run.text("role"), run.text(message.role));
    run.put(made, run.text("content"), run.text(message.content));
    all.emplace_back(&made);
  }
  json_ = jinja::json_text(run, Value(run.list(std::move(all))), {});
}

Messages Messages::from_json(std::string json) {
  Messages messages;
  messages.json_ = std::move(json);
  return messages;
}

const std::string& TokenizerParts::template_of(const ChatOptions& options) const {
  if (!options.chat_template.empty()) {
    const auto named = chat_templates.find(options.chat_template);
    return named == chat_templates.end() ? options.chat_template : named->second;
  }
  if (!options.tools.empty()) {
    if (const auto found = chat_templates.find("tool_use"); found != chat_templates.end())
      return found->second;
  }
  LEVIN_CHECK(chat_template, "text.chat", "{}",
              chat_templates.empty() ? "the tokenizer has no chat template; set chat_template"
                                     : "none of the tokenizer's chat templates is the default; set "
                                       "chat_template to the name of one");
  return *chat_template;
}

std::shared_ptr<const jinja::Template> TokenizerParts::parsed_template(
    const std::string& source) const {
  {
    const std::lock_guard lock(mutex);
    if (const auto found = parsed.find(source); found != parsed.end()) return found->second;
  }
  auto made = std::make_shared<const jinja::Template>(source);
  const std::lock_guard lock(mutex);
  constexpr size_t kMost = 8;
  if (parsed.size() >= kMost) parsed.clear();
  parsed.emplace(source, made);
  return made;
}

Chat Tokenizer::apply_chat_template(const Messages& messages, const ChatOptions& options) const {
  const bool goes_on = !options.continue_final_message.empty();
  LEVIN_CHECK(!goes_on || !options.add_generation_prompt, "text.chat",
              "got continue_final_message, which continues the last message, and "
              "add_generation_prompt, which begins another one; set only one");
  LEVIN_CHECK(!goes_on || !options.return_assistant_tokens_mask, "text.chat",
              "got return_assistant_tokens_mask and continue_final_message; set only one");
  LEVIN_CHECK(options.tokenize || !options.return_assistant_tokens_mask, "text.chat",
              "got return_assistant_tokens_mask without tokenize; set tokenize = true");
  const std::string& source = parts_->template_of(options);
  const auto chat_template = parts_->parsed_template(source);
  LEVIN_CHECK(
      !options.return_assistant_tokens_mask || chat_template->has_generation(), "text.chat",
      "got return_assistant_tokens_mask, but the chat template has no generation block; use a "
      "template that puts {{% generation %}} and {{% endgeneration %}} around assistant text");
  LEVIN_CHECK(
      !options.sanitize_control_tokens ||
          (options.tokenize && !options.return_assistant_tokens_mask),
      "text.chat",
      "sanitize_control_tokens needs tokenize = true and return_assistant_tokens_mask = false");
  Run run(options.limits);
  std::optional<ControlTokens> control;
  if (options.sanitize_control_tokens) {
    control.emplace(parts_->added, parts_->chat_control_tokens, chat_template->literals());
  }
  const auto marked = [&](const Value& value) {
    return control ? control->marked(run, value) : value;
  };
  List& list = *marked(Value(&read_messages(run, messages))).list();
  std::vector<std::pair<std::string, Value>> variables;
  for (const auto& [role, token] : parts_->roles) variables.emplace_back(role, run.text(token));
  if (!options.variables.empty()) {
    const Value more = jinja::read_json(run, options.variables, "variables");
    LEVIN_CHECK(more.dict() != nullptr, "text.chat", "variables are {}, wanted an object",
                jinja::type_name(more));
    for (const auto& [name, value] : more.dict()->items) {
      for (const std::string_view own :
           {"messages", "tools", "documents", "add_generation_prompt"}) {
        LEVIN_CHECK(name.text() != own, "text.chat",
                    "got the variable '{}', but it has an option of its own; set that option", own);
      }
      variables.emplace_back(name.text(), marked(value));
    }
  }
  const auto listed = [&](const std::string& json, const char* name) {
    Value value = json.empty() ? Value(jinja::None{}) : jinja::read_json(run, json, name);
    LEVIN_CHECK(value.is_none() ||
                    (value.list() != nullptr &&
                     std::ranges::all_of(value.list()->items,
                                         [](const Value& item) { return item.dict() != nullptr; })),
                "text.chat", "{} are not a list of objects", name);
    variables.emplace_back(name, marked(value));
  };
  listed(options.tools, "tools");
  listed(options.documents, "documents");
  variables.emplace_back("add_generation_prompt", Value(options.add_generation_prompt));
  std::optional<Continued> continued;
  if (goes_on) continued.emplace(run, list, options.continue_final_message, source);
  variables.emplace_back("messages", Value(&list));
  jinja::Rendered rendered = chat_template->render(run, variables, options.now);
  Chat chat{.text = std::move(rendered.text), .encoding = {}, .assistant_mask = {}};
  if (continued) chat.text = continued->cut(std::move(chat.text));
  if (!options.tokenize) return chat;
  if (control) {
    const TokenizerParts::Loan memory(*parts_);
    chat.encoding = parts_->encode_marked(chat.text, {}, *memory);
    parts_->pad({&chat.encoding, 1}, true);
    return chat;
  }
  chat.encoding = encode(chat.text, {.add_special_tokens = false});
  if (options.return_assistant_tokens_mask) {
    chat.assistant_mask = mask_of(chat.encoding, chat.text, rendered.generations);
  }
  return chat;
}

}  // namespace levin::text
