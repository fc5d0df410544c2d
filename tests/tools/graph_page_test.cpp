#include "tools/graph/graph_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "tests/tools/step.h"

namespace {

using levin::graph::find_device;
using levin::test::mlp_step;
using levin::tools::graph_page;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kDataBegin = "<script id=\"data\" type=\"application/json\">";

/// What a browser hands to JSON.parse.
json data_in(const std::string& page) {
  const size_t begin = page.find(kDataBegin) + kDataBegin.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

size_t count_of(const std::string& page, const std::string& word) {
  size_t count = 0;
  for (size_t at = page.find(word); at != std::string::npos; at = page.find(word, at + 1)) ++count;
  return count;
}

class GraphPage : public ::testing::Test {
 protected:
  const levin::graph::GraphModule step_ = mlp_step(1.0);
  const std::string page_ = graph_page(step_.graph(), "a </script> & more", *find_device("cpu"));
  const json data_ = data_in(page_);
};

TEST_F(GraphPage, ItsTitleEndsNoElement) {
  EXPECT_EQ(data_.at("title").get<std::string>(), "a </script> & more");
  EXPECT_THAT(page_, HasSubstr("<title>a &lt;/script> &amp; more</title>"));
  EXPECT_EQ(count_of(page_, "<script"), 2U);
  EXPECT_EQ(count_of(page_, "</script>"), 2U);
}

TEST_F(GraphPage, NeedsNothingElse) {
  EXPECT_THAT(page_, StartsWith("<!doctype html>"));
  for (const char* word : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page_, Not(HasSubstr(word)));
  }
}

TEST_F(GraphPage, ColumnsHoldEveryOperator) {
  const auto is_operator = [](const levin::graph::Node& node) {
    return node.opcode() == levin::graph::Opcode::kCallFunction;
  };
  const auto count = std::ranges::count_if(step_.graph().nodes(), is_operator);
  for (const auto& [name, column] : data_.at("operators").items()) {
    EXPECT_EQ(column.size(), static_cast<size_t>(count)) << name;
  }
  EXPECT_EQ(data_.at("operators").size(), 12U);
  EXPECT_THAT(data_.at("modules").get<std::vector<std::string>>(), IsSupersetOf({"", "0", "2"}));
}

TEST_F(GraphPage, NumbersAreThoseOfTheGraph) {
  const auto cost = levin::graph::cost_of(step_.graph(), *find_device("cpu"));
  const auto memory = levin::graph::memory_of(step_.graph());
  EXPECT_DOUBLE_EQ(data_.at("totals").at("flops").get<double>(), cost.flops);
  EXPECT_EQ(data_.at("totals").at("peak").get<int64_t>(), memory.peak_bytes);
  const auto bytes = data_.at("operators").at("memory").get<std::vector<int64_t>>();
  EXPECT_EQ(*std::ranges::max_element(bytes), memory.peak_bytes);
}

TEST_F(GraphPage, NothingThatIsStackedIsMoreThanTheWhole) {
  const json& held = data_.at("held");
  const int64_t parameters = 4 * (32 * 64 + 64 + 64 * 8 + 8);
  EXPECT_EQ(held.at("parameters").get<int64_t>(), parameters);
  EXPECT_EQ(data_.at("operators").at("gradients").back().get<int64_t>(), parameters);
  int64_t all_held = 0;
  for (const json& bytes : held) all_held += bytes.get<int64_t>();
  for (const json& bytes : data_.at("operators").at("memory")) EXPECT_GE(bytes, all_held);
}

TEST(GraphPageOfOldGradients, StacksThemOnce) {
  const auto gradients_of = [](bool adds) {
    const json data = json::parse(levin::tools::page_data(levin::test::step_with_old_gradient(adds),
                                                          "step", *find_device("cpu")));
    return data.at("operators").at("gradients").get<std::vector<int64_t>>();
  };
  EXPECT_THAT(gradients_of(true), ElementsAre(64, 64, 64, 64, 64, 64, 64));
  EXPECT_THAT(gradients_of(false), ElementsAre(0, 0, 0, 0, 0, 64));
}

}  // namespace
