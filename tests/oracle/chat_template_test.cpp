// Conversations through the chat templates of the Python package trl: text, assistant mask or refusal is what
// transformers' apply_chat_template gives (chat_templates.py). Skipped where .deps/chat_templates is not there
// (scripts/oracle.sh prepare unpacks it; LEVIN_CHAT_TEMPLATES names another folder of *.jinja).
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

#include "levin/base/error.h"
#include "levin/text/tokenizer.h"
#include "tests/oracle/python.h"

namespace levin::text {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kNow = 1'700'000'000;

class ChatTemplates : public test::PythonTest {};

ChatOptions options_of(const json& one, const json& sources) {
  const json& given = one["options"];
  ChatOptions options{.chat_template = sources[one["template"].get<std::string>()],
                      .add_generation_prompt = given.value("add_generation_prompt", false),
                      .continue_final_message = given.value("continue_final_message", ""),
                      .now = kNow};
  if (given.contains("tools")) options.tools = given["tools"].dump();
  if (given.contains("variables")) options.variables = given["variables"].dump();
  options.return_assistant_tokens_mask = !one["mask"].is_null();
  return options;
}

std::string mask_text(const Chat& chat) {
  std::string text;
  for (const int32_t one : chat.assistant_mask) text += static_cast<char>('0' + one);
  return text;
}

TEST_F(ChatTemplates, GiveTheTextMaskOrRefusalOfTransformers) {
  const char* given = std::getenv("LEVIN_CHAT_TEMPLATES");
  const fs::path templates =
      given != nullptr ? given : test::source_dir() + "/.deps/chat_templates";
  if (!fs::exists(templates)) GTEST_SKIP() << "no " << templates << "; make oracle fetches it";
  std::string output;
  ASSERT_EQ(
      run("chat_templates.py", "'" + file("").string() + "' '" + templates.string() + "'", &output),
      0)
      << output;
  // Objects keep the order of their keys, which templates write.
  const auto all = nlohmann::ordered_json::parse(std::ifstream(file("cases.json")));
  const json sources = all["sources"];
  const Tokenizer tokenizer = Tokenizer::from_pretrained(file("tokenizer"));
  size_t texts = 0;
  size_t refusals = 0;
  size_t masks = 0;
  for (const auto& ordered : all["cases"]) {
    json one = ordered;
    const std::string what = one["template"].get<std::string>() + " " +
                             one["options"].dump().substr(0, 80) + " " +
                             ordered["messages"].dump().substr(0, 300);
    ChatOptions options = options_of(one, sources);
    if (ordered["options"].contains("tools")) options.tools = ordered["options"]["tools"].dump();
    try {
      const Chat chat =
          tokenizer.apply_chat_template(Messages::from_json(ordered["messages"].dump()), options);
      ASSERT_FALSE(one["text"].is_null())
          << what << "\ntransformers refuses: " << one["why"] << "\nlevin: " << chat.text;
      ASSERT_EQ(chat.text, one["text"].get<std::string>()) << what;
      ++texts;
      if (one["mask"].is_null()) continue;
      ASSERT_EQ(mask_text(chat), one["mask"].get<std::string>()) << what;
      ++masks;
    } catch (const Error& error) {
      ASSERT_TRUE(one["text"].is_null()) << what << "\n"
                                         << error.what() << "\nwanted: " << one["text"];
      ++refusals;
    }
  }
  EXPECT_GE(sources.size(), 72U);
  EXPECT_GT(texts, 1500U);
  EXPECT_GT(refusals, 100U);
  EXPECT_GT(masks, 500U);
}

class ControlTokens : public test::PythonTest {};

// Where a message has them they are text, and a token where the template writes them.
TEST_F(ControlTokens, OfMessagesAreTextAsInTransformers) {
  std::string output;
  ASSERT_EQ(run("control_tokens.py", "'" + file("").string() + "'", &output), 0) << output;
  const auto all = nlohmann::ordered_json::parse(std::ifstream(file("cases.json")));
  size_t others = 0;
  for (const auto& one : all["chats"]) {
    const Tokenizer tokenizer = Tokenizer::from_pretrained(file(one["folder"].get<std::string>()));
    const Messages messages = Messages::from_json(one["messages"].dump());
    ChatOptions options;
    if (!one["tools"].is_null()) options.tools = one["tools"].dump();
    EXPECT_EQ(tokenizer.apply_chat_template(messages, options).encoding.ids,
              one["plain"].get<std::vector<int32_t>>())
        << one;
    options.sanitize_control_tokens = true;
    EXPECT_EQ(tokenizer.apply_chat_template(messages, options).encoding.ids,
              one["ids"].get<std::vector<int32_t>>())
        << one;
    others += one["ids"] == one["plain"] ? 0 : 1;
  }
  EXPECT_GE(others, 10U);
  for (const auto& one : all["ends"]) {
    PretrainedOptions options;
    if (!one["bos"].is_null()) options.add_bos_token = one["bos"].get<bool>();
    if (!one["eos"].is_null()) options.add_eos_token = one["eos"].get<bool>();
    const Tokenizer tokenizer =
        Tokenizer::from_pretrained(file(one["folder"].get<std::string>()), options);
    EXPECT_EQ(tokenizer.encode("the hello").ids, one["ids"].get<std::vector<int32_t>>()) << one;
  }
}

}  // namespace
}  // namespace levin::text
