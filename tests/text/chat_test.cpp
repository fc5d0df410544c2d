// apply_chat_template over a small tokenizer; against transformers it is tested in tests/oracle.
#include <gtest/gtest.h>

#include "levin/text/tokenizer.h"
#include "tests/support/error_of.h"
#include "tests/text/small_tokenizer.h"

namespace levin::text {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{% if m.role == 'user' %}a {{ m.content }} {% else %}{% generation %}b "
    "{{ m.content }} {% endgeneration %}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}b{% endif %}{{ more }}";

std::string told(const Messages& messages, const ChatOptions& options) {
  const std::string words =
      test::error_of([&] { test::SmallTokenizer().make().apply_chat_template(messages, options); });
  return words.substr(0, words.find(':'));
}

TEST(Chat, IsTextAndTokensAndMask) {
  const Tokenizer tokenizer = test::SmallTokenizer().make();
  const Chat chat = tokenizer.apply_chat_template(
      {{"user", "c"}, {"assistant", "c c"}},
      {.chat_template = kTemplate, .return_assistant_tokens_mask = true});
  EXPECT_EQ(chat.text, "a c b c c ");
  EXPECT_EQ(chat.encoding.ids, (std::vector<int32_t>{1, 3, 2, 3, 3}));
  // As in transformers the last character of what was said is a blank, which no token has.
  EXPECT_EQ(chat.assistant_mask, (std::vector<int32_t>{0, 0, 1, 1, 1}));
}

TEST(Chat, TakesJsonVariablesAndThePrompt) {
  const Tokenizer tokenizer = test::SmallTokenizer().make();
  const Chat chat =
      tokenizer.apply_chat_template(Messages::from_json(R"([{"role": "user", "content": "c"}])"),
                                    {.chat_template = kTemplate,
                                     .add_generation_prompt = true,
                                     .tokenize = false,
                                     .variables = R"({"more": [1, "x"]})"});
  EXPECT_EQ(chat.text, "a c b[1, 'x']");
  EXPECT_TRUE(chat.encoding.ids.empty());
}

TEST(Chat, GoesOnWithTheLastMessage) {
  const Tokenizer tokenizer = test::SmallTokenizer().make();
  const Chat chat = tokenizer.apply_chat_template(
      {{"user", "c"}, {"assistant", "c"}},
      {.chat_template = kTemplate, .continue_final_message = "content"});
  EXPECT_EQ(chat.text, "a c b c");
}

TEST(Chat, RefusesWhatExcludesEachOther) {
  const Messages one = {{"user", "c"}};
  EXPECT_EQ(told(one, {}), "text.chat");
  EXPECT_EQ(told(Messages::from_json("[]"), {.chat_template = kTemplate}), "text.chat");
  EXPECT_EQ(told(Messages::from_json("[1]"), {.chat_template = kTemplate}), "text.chat");
  EXPECT_EQ(told(Messages::from_json("{"), {.chat_template = kTemplate}), "text.chat");
  EXPECT_EQ(told(one, {.tools = "[1]", .chat_template = kTemplate}), "text.chat");
  EXPECT_EQ(told(one, {.chat_template = kTemplate, .variables = R"({"messages": 1})"}),
            "text.chat");
  EXPECT_EQ(told(one, {.chat_template = "x", .return_assistant_tokens_mask = true}), "text.chat");
  EXPECT_EQ(told(one, {.chat_template = kTemplate,
                       .add_generation_prompt = true,
                       .continue_final_message = "content"}),
            "text.chat");
  EXPECT_EQ(told(one, {.chat_template = "{{ raise_exception('no') }}"}), "text.template.refused");
}

}  // namespace
}  // namespace levin::text
