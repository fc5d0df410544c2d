// Operators of one's own, which exported programs call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/interchange/export_program.h"
#include "levin/interchange/load_exported.h"
#include "tests/interchange/small_programs.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::own_operators {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// y = op(x), with more arguments.
std::shared_ptr<ExportedModule> calling(const std::string& target,
                                        const std::vector<std::pair<std::string, json>>& more) {
  SmallProgram program;
  program.parameter("w", at::full({3}, 2.0));
  program.input("x", meta_of({-1, 3}));
  program.node("torch.ops.aten.mul.Tensor",
               {{"self", tensor_named("x")}, {"other", tensor_named("p_w")}}, "h");
  std::vector<std::pair<std::string, json>> arguments = {{"x", tensor_named("h")}};
  arguments.insert(arguments.end(), more.begin(), more.end());
  program.node(target, arguments, "y");
  program.output("y");
  const Scratch scratch;
  program.write(scratch / "net.pt2");
  return load_exported(scratch / "net.pt2");
}

TEST(RegisterOperator, IsCalledByProgramsAndHasTheGradientOfWhatItCalls) {
  const double shift = 0.5;
  register_operator("levin_own::scaled(Tensor x, float alpha, bool negate=False) -> Tensor",
                    [shift](const at::Tensor& x, double alpha, bool negate) {
                      return x.square() * (negate ? -alpha : alpha) + shift;
                    });
  const auto net = calling("torch.ops.levin_own.scaled.default", {{"alpha", {{"as_float", 3.0}}}});
  const at::Tensor y = net->forward(at::ones({2, 3}));
  EXPECT_TRUE(at::equal(y.detach(), at::full({2, 3}, 12.5)));  // 3 * 2^2 + 0.5
  y.sum().backward();
  EXPECT_TRUE(at::equal(net->parameters()[0].grad(), at::full({3}, 24.0)));  // 2 rows of 2 * 3 * 2
  // Beside others of its namespace.
  register_operator("levin_own::twice(Tensor x) -> Tensor",
                    [](const at::Tensor& x) { return x * 2; });
  EXPECT_TRUE(at::equal(
      calling("torch.ops.levin_own.twice.default", {})->forward(at::ones({2, 3})).detach(),
      at::full({2, 3}, 4.0)));
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& given) {
    return {given[0] * 100};  // no derivative of it, so that it shows
  }
};

TEST(RegisterOperator, MayHaveABackwardOfItsOwn) {
  register_operator("levin_own::doubled(Tensor x) -> Tensor",
                    [](const at::Tensor& x) { return Doubled::apply(x); });
  const auto net = calling("torch.ops.levin_own.doubled.default", {});
  net->forward(at::ones({2, 3})).sum().backward();
  EXPECT_TRUE(at::equal(net->parameters()[0].grad(), at::full({3}, 200.0)));
}

TEST(RegisterOperator, OfAnotherSchemaOrATakenNameIsAnError) {
  const auto same = [](const at::Tensor& x) { return x; };
  const auto told = [&](const std::string& schema) {
    return error_of([&] { register_operator(schema, same); });
  };
  EXPECT_THAT(told("levin_own::bad(Tensor x"),
              AllOf(StartsWith("interchange.operator: "), HasSubstr("is not a schema")));
  EXPECT_THAT(told("bad(Tensor x) -> Tensor"), HasSubstr("it has no namespace"));
  EXPECT_THAT(told("aten::relu(Tensor self) -> Tensor"),
              HasSubstr("aten::relu is registered already"));
  EXPECT_THAT(told("levin_own::other(Tensor x, float alpha) -> Tensor"),
              HasSubstr("the function does not have the schema"));
  // What failed has left nothing.
  EXPECT_EQ(told("levin_own::other(Tensor x) -> Tensor"), "no error");
}

}  // namespace
}  // namespace levin::test::own_operators
