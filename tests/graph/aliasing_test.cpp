// Writes through views, as a table of small functions.
#include <gmock/gmock.h>

#include "tests/graph/against_eager.h"
#include "tests/support/error_of.h"

namespace {

using at::Tensor;
using levin::test::Tensors;
using torch::indexing::None;
using torch::indexing::Slice;

struct AliasingCase {
  const char* name;
  std::function<Tensors(const Tensors&)> function;
};

std::vector<AliasingCase> aliasing_cases() {
  return {
      {"add_", [](const Tensors& in) -> Tensors { return {in[0].add_(1)}; }},
      {"add_itself", [](const Tensors& in) -> Tensors { return {in[0].add_(in[0])}; }},
      {"clone_then_write",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor before = x * 2;
         x.mul_(3);
         return {before, x, in[0]};
       }},
      {"slice_of_fresh",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0] * 2;
         x.slice(0, 1, 3).add_(10);
         return {x, x.sum()};
       }},
      {"slice_of_input",
       [](const Tensors& in) -> Tensors {
         in[0].slice(1, 0, 5, 2).mul_(in[1].slice(1, 0, 5, 2));
         return {in[0] + 1};
       }},
      {"select",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0] + 0;
         x.select(0, 2).fill_(7);
         x[1][2] = 5;
         return {x};
       }},
      {"transposed",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0] + 0;
         x.t().add_(torch::arange(4));
         x.transpose(0, 1).mul_(in[1].t());
         return {x, x.t()};
       }},
      {"permuted",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone().view({2, 2, 6});
         x.permute({2, 0, 1}).select(0, 1).add_(1);
         return {x};
       }},
      {"view_of_view",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor flat = x.view({-1});
         const Tensor middle = flat.narrow(0, 4, 12).view({3, 4});
         middle.t().select(0, 0).zero_();
         return {x, flat.sum(), middle};
       }},
      {"read_through_older_view",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor row = x[1];
         const Tensor before = row * 1;
         x.add_(1);
         const Tensor column = x.select(1, 0);
         row.mul_(2);
         return {before, row, column, x};
       }},
      {"overlapping_writes",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor upper = x.slice(0, 0, 3), lower = x.slice(0, 1, 4);
         upper.add_(1);
         lower.mul_(2);
         upper.sub_(lower.sum());
         return {x, lower};
       }},
      {"expanded_read",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].select(0, 0).clone();
         const Tensor wide = x.unsqueeze(0).expand({3, 6});
         const Tensor before = wide + 0;
         x.add_(1);
         return {before, wide.sum(0), wide.contiguous()};
       }},
      {"copy_",
       [](const Tensors& in) -> Tensors {
         const Tensor x = torch::empty({4, 6});
         x.copy_(in[0]);
         x.slice(0, 0, 2).copy_(in[1].slice(0, 2, 4));
         return {x};
       }},
      {"copy_of_expanded",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         x.copy_(in[1].select(0, 0).expand({4, 6}));
         return {x};
       }},
      {"index_put_",
       [](const Tensors& in) -> Tensors {
         Tensor x = in[0].clone();
         x.index_put_({torch::tensor({0, 2}), Slice(1, None)}, 3.0);
         x.index_put_({Slice(), 2}, in[1].index({Slice(), 1}));
         x.index_put_({in[1] > 0}, -1);
         return {x};
       }},
      {"out_variant",
       [](const Tensors& in) -> Tensors {
         Tensor out = torch::empty({4, 6});
         torch::add_out(out, in[0], in[1]);
         Tensor grown = torch::empty({0});
         torch::mul_out(grown, in[0], out);
         return {out, grown};
       }},
      {"out_into_slice",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         Tensor half = x.slice(0, 0, 2);
         torch::add_out(half, in[1].slice(0, 0, 2), in[1].slice(0, 2, 4));
         return {x};
       }},
      {"chunks_one_by_one",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensors parts = x.chunk(3, 1);
         parts[0].mul_(2);
         parts[2].add_(parts[0]);
         parts[1].sub_(parts[2]);
         return {x, parts[0], parts[1]};
       }},
      {"unbound",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensors rows = x.unbind(0);
         for (size_t i = 1; i < rows.size(); ++i) rows[i].add_(rows[i - 1]);
         return {x};
       }},
      {"split_with_sizes",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensors parts = x.split_with_sizes({1, 2, 3}, -1);
         parts[2].zero_();
         parts[1].add_(1);
         return {x, parts[0] + parts[1].sum()};
       }},
      {"squeezed",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone().unsqueeze(1);
         x.squeeze(1).add_(1);
         x.unsqueeze(-1).mul_(2);
         return {x};
       }},
      {"diagonal",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         x.diagonal().fill_(1);
         x.fill_diagonal_(2);
         return {x};
       }},
      {"unfolded",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor windows = x.unfold(1, 3, 3);
         windows.mul_(2);
         return {x, windows};
       }},
      {"as_strided",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0] * 1;
         const Tensor part = x.slice(0, 1).as_strided({2, 3}, {6, 2}, 7);
         part.add_(1);
         x.slice(0, 1).add_(1);
         return {x, part, x.slice(0, 1).as_strided({2}, {1})};
       }},
      {"geometry_in_place",
       [](const Tensors& in) -> Tensors {
         Tensor x = in[0].clone();
         const Tensor same = x.view({24});
         x.t_();
         x.add_(1);
         x.unsqueeze_(0);
         return {x, same};
       }},
      {"foreach",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensors list = {x[0], in[1], x[1]};
         at::_foreach_add_(list, 2.0);
         at::_foreach_mul_(list, {list[0], in[0], x[2]});
         return {x, in[1]};
       }},
      {"same_tensor_twice",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         at::_foreach_add_({x, x}, 1.0);
         return {x};
       }},
      {"swap_inputs",
       [](const Tensors& in) -> Tensors {
         const Tensor kept = in[0].clone();
         in[0].copy_(in[1]);
         in[1].copy_(kept);
         return {in[0] - in[1]};
       }},
      {"returns_written_and_old",
       [](const Tensors& in) -> Tensors {
         const Tensor old = in[0] + 0;
         in[0].mul_(2);
         return {in[0], old, in[0].t(), in[0][1]};
       }},
      {"dtype_view",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         x.view(torch::kInt).bitwise_and_(0x7FFFFFFF);
         return {x};
       }},
      {"complex_view",
       [](const Tensors& in) -> Tensors {
         const Tensor x = torch::view_as_complex(in[0].view({4, 3, 2}).clone());
         torch::real(x).add_(1);
         return {torch::view_as_real(x), x.conj() * x,
                 torch::view_as_real(x.conj().resolve_conj())};
       }},
      {"set_",
       [](const Tensors& in) -> Tensors {
         const Tensor x = in[0].clone();
         const Tensor part = torch::empty({0}).set_(x.storage(), 6, {2, 6}, {6, 1});
         part.add_(1);
         return {x, part};
       }},
      {"constant_tensor",
       [](const Tensors& in) -> Tensors {
         const Tensor weights = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
         return {in[0] * weights, torch::tensor({3.0F}).add_(1) * in[0]};
       }},
      {"constant_written_in_part",
       [](const Tensors& in) -> Tensors {
         const Tensor weights = torch::tensor({1.0F, 2.0F, 3.0F});
         weights[1].fill_(7);
         const Tensor flat = torch::empty({2, 12}).view({-1});
         flat.copy_(in[0].view({24}));
         return {weights, weights * in[0][0][0], flat};
       }},
      {"resize_",
       [](const Tensors& in) -> Tensors {
         const Tensor x = torch::empty({0});
         x.resize_({4, 6}).copy_(in[0]);
         x.resize_({2, 6}).mul_(2);
         return {x};
       }},
      {"empty_tensors",
       [](const Tensors& in) -> Tensors {
         const Tensor none = in[0].slice(0, 0, 0);
         return {torch::cat({none.add(1), in[0]}), none.sum(), torch::zeros({0, 3}).add_(1)};
       }},
  };
}

class Aliasing : public testing::TestWithParam<AliasingCase> {};

TEST_P(Aliasing, EqualsEager) {
  const auto inputs = [] { return Tensors{torch::randn({4, 6}), torch::randn({4, 6})}; };
  torch::manual_seed(3);
  const auto module = levin::test::expect_equals_eager({.function = GetParam().function,
                                                        .inputs = inputs(),
                                                        .other_inputs = inputs(),
                                                        .allow_host_reads = true});
  if (HasFailure()) std::puts(levin::graph::to_text(module.graph()).c_str());
}

INSTANTIATE_TEST_SUITE_P(Table, Aliasing, testing::ValuesIn(aliasing_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AliasingOfState, TensorsOfOneMemoryThatOverlapBecomeViewsOfIt) {
  const Tensor flat = torch::arange(12.0);
  const Tensor left = flat.slice(0, 0, 6), right = flat.slice(0, 4, 12);
  const Tensor even = flat.as_strided({6}, {2}, 0), odd = flat.as_strided({6}, {2}, 1);
  const levin::test::Subject subject{.function = [&](const Tensors& in) -> Tensors {
                                       left.add_(in[0]);
                                       right.mul_(2);
                                       even.add_(1);
                                       odd.sub_(1);
                                       return {left + in[0], flat.sum(), even, odd};
                                     },
                                     .inputs = {torch::ones({1})},
                                     .other_inputs = {torch::full({1}, 3.0)},
                                     .state = {{"flat", flat}}};
  levin::test::expect_equals_eager(subject);
}

TEST(AliasingOfState, DisjointPartsOfOneMemoryStayInputsOfTheirOwn) {
  const Tensor flat = torch::arange(12.0);
  const Tensor left = flat.slice(0, 0, 6), right = flat.slice(0, 6, 12);
  const levin::test::Subject subject{.function = [&](const Tensors& in) -> Tensors {
                                       left.add_(in[0]);
                                       right.mul_(left);
                                       return {};
                                     },
                                     .inputs = {torch::ones({1})},
                                     .other_inputs = {torch::full({1}, 3.0)},
                                     .state = {{"left", left}, {"right", right}}};
  const auto module = levin::test::expect_equals_eager(subject);
  EXPECT_EQ(module.state().size(), 2U);
  EXPECT_TRUE(module.graph().find_nodes("aten::as_strided").empty());
}

/// As cuDNN's recurrent layers do: their weights, and all of their memory behind them.
TEST(AliasingOfState, ThatAnOperatorReadsBesideAllOfItsMemory) {
  const Tensor memory = torch::randn({12});
  const Tensor left = memory.slice(0, 0, 6), right = memory.slice(0, 6, 12);
  const levin::test::Subject subject{.function = [&](const Tensors& in) -> Tensors {
                                       const Tensor all = torch::empty({0}).set_(memory.storage());
                                       const Tensor joined = torch::cat({right, left, all});
                                       left.add_(in[0][0][0]);
                                       return {joined, torch::cat({left, all})};
                                     },
                                     .inputs = {torch::randn({4, 6})},
                                     .other_inputs = {torch::randn({4, 6})},
                                     .state = {{"left", left}, {"right", right}}};
  levin::test::expect_equals_eager(subject);
}

TEST(AliasingErrors, NameWhatIsShared) {
  const Tensor x = torch::randn({4, 6});
  const auto twice = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_THAT(levin::test::error_of([&] { levin::trace(twice, {x, x[1]}); }),
              testing::StartsWith("graph.trace.overlap: input input_1 shares memory"));
  EXPECT_THAT(levin::test::error_of([&] { levin::trace(twice, {x[1], x[2]}); }),
              testing::StrEq("no error"));
  const auto wider = [&](const Tensor& a) { return a + x.sum(); };
  EXPECT_THAT(levin::test::error_of([&] { levin::trace(wider, {x[1]}); }),
              testing::StartsWith("graph.record.alias: got a tensor [4, 6] that shares memory"));
  const auto grows = [](const Tensor& a) { return (a + 1).resize_({100}); };
  EXPECT_THAT(levin::test::error_of([&] { levin::trace(grows, {x}); }),
              testing::StartsWith("graph.record.alias: got resize_ of a tensor with contents"));
}

TEST(AliasingErrors, ListsThatReadWhatTheyWriteAreNamed) {
  const auto crossed = [](const Tensor& a) {
    const Tensor x = a.clone();
    at::_foreach_mul_({x[0], x[1]}, {x[1], x[0]});
  };
  EXPECT_THAT(
      levin::test::error_of([&] { levin::trace(crossed, {torch::ones({2, 3})}); }),
      testing::StartsWith("graph.record.alias: aten::_foreach_mul_.List reads a tensor [3]"));
}

TEST(AliasingErrors, SparseTensorsAreNamed) {
  const auto sparse = [](const Tensor& a) { return a.to_sparse(); };
  EXPECT_THAT(levin::test::error_of(
                  [&] { levin::trace(sparse, {torch::eye(3)}, {.allow_host_reads = true}); }),
              testing::StartsWith("graph.record.layout: "));
}

}  // namespace
