// With debug information a refusal, and a difference that is found later, names file and line.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/graph/compile/compiled.h"

namespace places {

using levin::graph::Compiled;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Place {
  const char* name;
  at::Tensor (*function)(const at::Tensor& x, int64_t call, Compiled& compiled);
  int line;
};

at::Tensor read_by_the_host(const at::Tensor& x, int64_t, Compiled&) {
  return x * x.sum().item<double>();
}
constexpr int kRead = __LINE__ - 2;

at::Tensor number_of_the_host(const at::Tensor& x, int64_t call, Compiled&) {
  return x * static_cast<double>(call);
}
constexpr int kNumber = __LINE__ - 2;

at::Tensor number_that_changes_later(const at::Tensor& x, int64_t call, Compiled&) {
  const at::Tensor y = x + 1;
  return y * (call < 13 ? 2.0 : 3.0);
}
constexpr int kLater = __LINE__ - 2;

at::Tensor keeps_each(const at::Tensor& x, int64_t, Compiled& compiled) {
  static std::vector<at::Tensor> list;
  const at::Tensor twice = x * 2;
  if (compiled.recording() != nullptr) list.push_back(twice);
  return twice + 1;
}
constexpr int kKept = __LINE__ - 4;

at::Tensor refused(const at::Tensor& x, int64_t, Compiled& compiled) {
  if (auto* recording = compiled.recording()) recording->refuse("a reason; its advice");
  return x + 1;
}
constexpr int kRefused = __LINE__ - 3;

at::Tensor asks(const at::Tensor& x, int64_t, Compiled& compiled) {
  static double number = 0;
  if (auto* recording = compiled.recording()) recording->depends_on("it", [] { return ++number; });
  return x + 3;
}
constexpr int kAsks = __LINE__ - 3;

class Places : public testing::TestWithParam<Place> {};

TEST_P(Places, AreNamedByFileAndLine) {
  Compiled compiled("it");
  for (int64_t i = 0; i < 40; ++i) {
    const at::Tensor x = at::full({4, 3}, static_cast<double>(i));
    compiled({.inputs = {x}, .names = {"x"}},
             [&] { return std::vector{GetParam().function(x, i, compiled)}; });
  }
  EXPECT_THAT(compiled.report().refusals,
              ElementsAre(HasSubstr(fmt::format("places_test.cpp:{}", GetParam().line))));
}

INSTANTIATE_TEST_SUITE_P(Graph, Places,
                         testing::Values(Place{"Read", read_by_the_host, kRead},
                                         Place{"Number", number_of_the_host, kNumber},
                                         Place{"Later", number_that_changes_later, kLater},
                                         Place{"Kept", keeps_each, kKept},
                                         Place{"Refused", refused, kRefused},
                                         Place{"Asks", asks, kAsks}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace places
