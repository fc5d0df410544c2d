#include "levin/base/json/known_keys.h"

#include <gtest/gtest.h>

#include <tuple>

#include "levin/base/log_sink.h"

namespace levin::detail {
namespace {

using Verdict = KnownKeys::Verdict;

constexpr std::string_view kEvery = R"keys(
  # a comment of a whole line
  read      vocab_size hidden_size   # and one behind keys
  harmless  use_cache
  only      is_causal = true
  only      scale = 1.0
  only      pooling = "first token" | "mean"
  only      heads = {} | []
  refused   quantization_config

)keys";

TEST(KnownKeys, AValueIsReadHarmlessRefusedOrUnknown) {
  const KnownKeys known({kEvery});
  const std::vector<std::tuple<const char*, const char*, Verdict, const char*>> cases{
      {"vocab_size", "5", Verdict::kRead, ""},
      {"hidden_size", "\"odd\"", Verdict::kRead, ""},
      {"use_cache", "false", Verdict::kHarmless, ""},
      {"is_causal", "true", Verdict::kHarmless, ""},
      {"is_causal", "false", Verdict::kRefused, "true"},
      {"is_causal", "1", Verdict::kRefused, "true"},
      {"is_causal", "null", Verdict::kHarmless, ""},
      {"scale", "1", Verdict::kHarmless, ""},
      {"scale", "1.5", Verdict::kRefused, "1.0"},
      {"pooling", "\"first token\"", Verdict::kHarmless, ""},
      {"pooling", " \"mean\" ", Verdict::kHarmless, ""},
      {"pooling", "\"max\"", Verdict::kRefused, "\"first token\" or \"mean\""},
      {"heads", "{ }", Verdict::kHarmless, ""},
      {"heads", "{\"0\": [1]}", Verdict::kRefused, "{} or []"},
      {"quantization_config", "{}", Verdict::kRefused, "no such key"},
      {"quantization_config", "null", Verdict::kHarmless, ""},
      {"comment", "1", Verdict::kUnknown, ""},
      {"", "1", Verdict::kUnknown, ""},
  };
  for (const auto& [key, value, verdict, wanted] : cases) {
    const KnownKeys::Answer answer = known.judge(key, value);
    EXPECT_EQ(answer.verdict, verdict) << key << " = " << value;
    EXPECT_EQ(answer.wanted, wanted) << key << " = " << value;
  }
}

TEST(KnownKeys, ALaterListReplacesLinesOfAnEarlierOne) {
  const KnownKeys known({kEvery, "only use_cache = true\nread is_causal"});
  EXPECT_EQ(known.judge("use_cache", "false").verdict, Verdict::kRefused);
  EXPECT_EQ(known.judge("is_causal", "false").verdict, Verdict::kRead);
  EXPECT_EQ(known.keys(),
            (std::vector<std::string>{"heads", "hidden_size", "is_causal", "pooling",
                                      "quantization_config", "scale", "use_cache", "vocab_size"}));
}

TEST(KnownKeys, AListThatCannotBeReadIsAMistakeOfLevin) {
  for (const char* list :
       {"forbidden x", "read", "only x", "only x = ", "only x = yes", "only = 1"})
    EXPECT_ANY_THROW(KnownKeys({list})) << list;
}

TEST(KnownKeys, OneWarningNamesAllUnknownKeys) {
  std::vector<std::string> heard;
  const log::Sink before =
      log::set_sink([&](log::Level, std::string_view text) { heard.emplace_back(text); });
  warn_of_unknown_keys("x/config.json", {});
  warn_of_unknown_keys("x/config.json", {"new_gate", "odd\x1b"});
  log::set_sink(before);
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_NE(heard[0].find("x/config.json"), std::string::npos) << heard[0];
  EXPECT_NE(heard[0].find("new_gate, odd\\x1b"), std::string::npos) << heard[0];
}

}  // namespace
}  // namespace levin::detail
