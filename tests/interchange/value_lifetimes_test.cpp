// How long a call of a program keeps its values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "levin/interchange/export_program.h"
#include "levin/interchange/load_exported.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/scratch.h"

namespace levin::test::value_lifetimes {
namespace {

using Nodes = std::vector<std::pair<std::string, std::string>>;  ///< input, result

/// The most results of levin_lifetimes::watched that lived at once while one ran, its own not counted.
struct Watch {
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> results;
  int64_t most = 0;
};
Watch& watch() {
  static Watch made;
  return made;
}

at::Tensor watched(const at::Tensor& x) {
  auto& [results, most] = watch();
  most = std::max<int64_t>(
      most, std::ranges::count_if(results, [](const auto& each) { return !each.expired(); }));
  const at::Tensor y = x * 2;
  results.emplace_back(y.getIntrusivePtr());
  return y;
}

json watched_nodes(const Nodes& nodes) {
  SmallProgram body;
  for (const auto& [input, result] : nodes) {
    body.node("torch.ops.levin_lifetimes.watched.default", {{"x", tensor_named(input)}}, result);
  }
  return body.graph["nodes"];
}

/// with torch.no_grad(): the nodes, which take `input` and give `output` as `result`.
void add_region(SmallProgram& program, const std::string& input, const Nodes& nodes,
                const std::string& output, const std::string& result) {
  json graph = SmallProgram().graph;
  graph["inputs"].push_back(tensor_named("inner"));
  graph["nodes"] = watched_nodes(nodes);
  graph["outputs"].push_back(tensor_named(output));
  program.node("torch.ops.higher_order.wrap_with_set_grad_enabled",
               {{"", {{"as_bool", false}}},
                {"", {{"as_graph", {{"name", "body"}, {"graph", graph}}}}},
                {"", tensor_named(input)}},
               result);
}

at::Tensor run(SmallProgram& program, const std::string& output) {
  static const bool registered = [] {
    register_operator("levin_lifetimes::watched(Tensor x) -> Tensor", watched);
    return true;
  }();
  EXPECT_TRUE(registered);
  program.output(output);
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  watch() = {};
  const at::NoGradGuard no_grad;
  return load_exported(scratch / "net.pt2")->forward(at::ones({2, 3}));
}

TEST(ValueLifetimes, EndWithTheLastUse) {
  SmallProgram program;
  program.input("x", meta_of({2, 3}));
  program.graph["nodes"] = watched_nodes({{"x", "a"}, {"a", "b"}, {"b", "c"}});
  EXPECT_TRUE(at::equal(run(program, "c"), at::full({2, 3}, 8.0)));
  EXPECT_EQ(watch().most, 1);
}

TEST(ValueLifetimes, EndWithTheLastUseInRegionsToo) {
  SmallProgram program;
  program.input("x", meta_of({2, 3}));
  const Nodes body = {{"inner", "a"}, {"a", "b"}, {"b", "c"}};
  add_region(program, "x", body, "c", "first");
  add_region(program, "first", body, "c", "second");
  add_region(program, "second", body, "c", "third");
  EXPECT_TRUE(at::equal(run(program, "third"), at::full({2, 3}, 512.0)));
  EXPECT_EQ(watch().most, 1);
}

TEST(ValueLifetimes, OfWhatARegionReadsByItsNameEndAfterIt) {
  SmallProgram program;
  program.input("x", meta_of({2, 3}));
  program.graph["nodes"] = watched_nodes({{"x", "a"}});
  add_region(program, "a", {{"inner", "b"}, {"a", "c"}}, "c", "first");
  add_region(program, "first", {{"inner", "b"}}, "first", "second");
  program.node("torch.ops.aten.add.Tensor",
               {{"self", tensor_named("first")}, {"other", tensor_named("second")}}, "sum");
  EXPECT_TRUE(at::equal(run(program, "sum"), at::full({2, 3}, 8.0)));
}

}  // namespace
}  // namespace levin::test::value_lifetimes
