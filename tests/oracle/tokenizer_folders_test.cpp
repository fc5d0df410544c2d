// Folders of small tokenizers with one odd key each (tokenizer_folders.py): ids, types, sequences, offsets and text are those of
// transformers' AutoTokenizer, or the key is refused or warned of by name. None differs in silence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/text/tokenizer.h"
#include "tests/oracle/python.h"

namespace levin::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TokenizerFolders : public test::PythonTest {
 protected:
  void SetUp() override {
    PythonTest::SetUp();
    before_ = log::set_sink(
        [this](log::Level, std::string_view text) { told_ += std::string(text) + "\n"; });
  }
  void TearDown() override {
    log::set_sink(before_);
    PythonTest::TearDown();
  }

  std::string told_;

 private:
  log::Sink before_;
};

json text_of(const Tokenizer& tokenizer, const json& wanted, bool passes_types) {
  const std::string text = wanted["text"];
  EncodeInput input{text, std::nullopt};
  std::string pair;
  if (!wanted["pair"].is_null()) {
    pair = wanted["pair"];
    input.second = EncodeInput::Part(pair);
  }
  const Encoding encoding = tokenizer.encode(input, {.offsets = OffsetUnit::kCodePoints});
  json offsets = json::array();
  for (const Offset& offset : encoding.offsets) offsets.push_back({offset.begin, offset.end});
  return {{"text", wanted["text"]},
          {"pair", wanted["pair"]},
          {"ids", encoding.ids},
          {"types", passes_types ? wanted["types"] : json(encoding.type_ids)},
          {"passed_types", passes_types ? json(encoding.type_ids) : wanted["passed_types"]},
          {"sequences", encoding.sequence_ids},
          {"offsets", offsets},
          {"decoded", tokenizer.decode(encoding.ids, {.skip_special_tokens = false})},
          {"skipped", tokenizer.decode(encoding.ids)}};
}

/// What levin makes, in the form of what transformers made.
json made_of(const Tokenizer& tokenizer, const json& wanted, bool passes_types) {
  json made = wanted;
  for (json& text : made["texts"]) text = text_of(tokenizer, text, passes_types);
  for (const auto& [role, id] : wanted["roles"].items())
    made["roles"][role] = tokenizer.special_token_id(role).value_or(-1);
  made["size"] = tokenizer.vocab_size();
  const auto length = tokenizer.model_max_length();
  made["max_length"] = length ? json(*length) : json(nullptr);
  made["truncation_side"] = tokenizer.default_truncation().direction;
  if (tokenizer.special_token("pad_token")) {
    made["padding_side"] = tokenizer.default_padding().direction;
    made["pad_type"] = tokenizer.default_padding().pad_type_id;
  }
  return made;
}

TEST_F(TokenizerFolders, WithOneOddKeyAreReadAsTransformersReadsThem) {
  std::string output;
  ASSERT_EQ(run("tokenizer_folders.py", "'" + file("").string() + "'", &output), 0) << output;
  const json all = json::parse(std::ifstream(file("folders.json")));
  std::set<std::string> refused;
  std::set<std::string> warned;
  for (const auto& [name, wanted] : all.items()) {
    const std::string odd = wanted["odd"];
    told_.clear();
    try {
      const Tokenizer tokenizer = Tokenizer::from_pretrained(file(name));
      const bool is_warned = !odd.empty() && told_.find(odd) != std::string::npos;
      if (is_warned) warned.insert(name);
      if (wanted.contains("error")) {
        ADD_FAILURE() << name << ": transformers refuses it: " << wanted["error"];
        continue;
      }
      const json made = made_of(tokenizer, wanted, name == "no_types");
      if (!is_warned) {
        EXPECT_THAT(told_, IsEmpty()) << name;
        EXPECT_EQ(made, wanted) << name << "\n" << json::diff(wanted, made).dump(1);
      }
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(odd)) << name;
      EXPECT_FALSE(odd.empty()) << name << ": " << error.what();
      refused.insert(name);
    }
  }
  EXPECT_EQ(refused,
            (std::set<std::string>{"class_of_another_model", "mistral_regex", "versions"}));
  EXPECT_EQ(warned, (std::set<std::string>{"new_field", "new_key", "t5"}));
  EXPECT_GE(all.size(), 60U);
}

}  // namespace
}  // namespace levin::text
