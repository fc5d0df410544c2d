#include <gtest/gtest.h>

#include "levin/base/error.h"
#include "levin/base/options.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
template <class T>
T read(std::string_view text) {
  T value{};
  levin::from_text(text, value);
  return value;
}

TEST(Text, NumbersSurviveTheRoundTrip) {
  for (const double value : {0.1, 1e-8, -3.0, 1e300, 0.30000000000000004}) {
    EXPECT_EQ(read<double>(levin::to_text(value)), value);
  }
  EXPECT_EQ(levin::to_text(-0.0), "-0.0") << "-0 is a whole number to TOML";
  EXPECT_EQ(read<int64_t>("-12"), -12);
  EXPECT_EQ(read<int64_t>("+12"), 12);
}

TEST(Text, RefusesWhatIsNoSuchValue) {
  for (const char* text : {"", "1.5", "12x", "x", "99999999999999999999"}) {
    EXPECT_EQ(error_id([&] { read<int64_t>(text); }), "base.text") << text;
  }
  EXPECT_EQ(error_id([&] { read<double>("1e"); }), "base.text");
  EXPECT_EQ(error_id([&] { read<bool>("maybe"); }), "base.text");
}

TEST(Text, ListsAndOptionals) {
  EXPECT_EQ(read<std::vector<int64_t>>("1,2,3"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_TRUE(read<std::vector<int64_t>>("").empty());
  EXPECT_EQ(levin::to_text(std::vector<std::string>{"a", "b"}), "a,b");
  EXPECT_EQ(read<std::optional<double>>("none"), std::nullopt);
  EXPECT_EQ(read<std::optional<double>>("0.5"), 0.5);
}

TEST(Text, ListsKeepEmptyItems) {
  for (const std::vector<std::string>& list : std::vector<std::vector<std::string>>{
           {}, {""}, {"a"}, {"a", ""}, {"", "a"}, {"", ""}, {"a", "", ""}}) {
    std::vector<std::string> read = {"something else"};
    levin::from_text(levin::to_text(list), read);
    EXPECT_EQ(read, list) << levin::to_text(list);
  }
  EXPECT_EQ(levin::to_text(std::vector<std::string>{"a", "b"}), "a,b");
}

TEST(Text, PrintableEscapesWhatATerminalWouldObey) {
  using levin::printable;
  EXPECT_EQ(printable("a name, \"quoted\", in \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "a name, \"quoted\", in \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\x1b[2Jgone\r\nlevin error: forged\t\x7f"),
            "\\x1b[2Jgone\\r\\nlevin error: forged\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  // CSI and a turn of direction as UTF-8; bytes that are none; a surrogate; too long a form.
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b"
            "31m");
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(printable(printable("\x1b")), printable("\x1b"));
  EXPECT_EQ(levin::printable_lines("two\n\tlines\x1b"), "two\n\tlines\\x1b");
}

TEST(Text, NearestFindsMisspellingsOnly) {
  const std::vector<std::string> known = {"max_epochs", "max_steps", "precision"};
  EXPECT_EQ(levin::nearest("max_epoch", known), "max_epochs");
  EXPECT_EQ(levin::nearest("presicion", known), "precision");
  EXPECT_EQ(levin::nearest("colour", known), std::nullopt);
  // Two that changed places are one mistake.
  EXPECT_EQ(levin::nearest("fdsp", {"auto", "single", "ddp", "fsdp", "zero", "xla"}), "fsdp");
  EXPECT_EQ(levin::nearest("dpp", {"zero", "ddp"}), "ddp");
  EXPECT_EQ(levin::nearest("ba", {"abcd", "ab"}), "ab");
}

}  // namespace
