#include "levin/base/text.h"

#include <gtest/gtest.h>

#include "levin/base/error.h"
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

TEST(Text, NearestFindsMisspellingsOnly) {
  const std::vector<std::string> known = {"max_epochs", "max_steps", "precision"};
  EXPECT_EQ(levin::nearest("max_epoch", known), "max_epochs");
  EXPECT_EQ(levin::nearest("presicion", known), "precision");
  EXPECT_EQ(levin::nearest("colour", known), std::nullopt);
}

}  // namespace
