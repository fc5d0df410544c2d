// Results that are only copied into a part of new memory are computed there, if nobody sees the
// difference.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "levin/graph/compile/compiled.h"
#include "levin/graph/replay/replay.h"
#include "tests/graph/against_eager.h"

namespace results_in_place {
namespace {

using at::Tensor;
using levin::graph::CheckOptions;
using levin::graph::Compiled;
using levin::graph::Opcode;
using levin::graph::Replay;

constexpr int64_t kRows = 8, kColumns = 16;  // a product has 128 elements, 512 bytes
constexpr int64_t kNumel = kRows * kColumns;

Tensor part(const Tensor& flat, int64_t first) {
  return flat.as_strided({kRows, kColumns}, {kColumns, 1}, first);
}

struct Case {
  std::string name;
  /// Of two matrices whose products it puts into memory.
  std::function<Tensor(const Tensor& a, const Tensor& b)> function;
  int64_t num_copies = 0;  ///< copy_ instructions that are left
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  return {
      {"One",
       [](const Tensor& a, const Tensor& b) {
         const Tensor product = a.mm(b), flat = at::empty({kNumel});
         part(flat, 0).copy_(product);
         return flat * 2;
       },
       0},
      {"TwoOneAfterTheOther",
       [](const Tensor& a, const Tensor& b) {
         const Tensor first = a.mm(b), flat = at::empty({2 * kNumel});
         part(flat, kNumel).copy_(first);
         const Tensor second = a.mm(b + 1);
         part(flat, 0).copy_(second);
         return flat * 2;
       },
       0},
      {"MemoryThatIsThereBefore",
       [](const Tensor& a, const Tensor& b) {
         const Tensor flat = at::empty({2 * kNumel});
         part(flat, 0).copy_(a.mm(b));
         const Tensor product = a.mm(b * 3);
         const Tensor read = part(flat, 0).sum();  // another part
         part(flat, kNumel).copy_(product);
         return flat * read;
       },
       0},
      {"WhatIsOverwrittenIsReadBetween",
       [](const Tensor& a, const Tensor& b) {
         const Tensor flat = at::empty({kNumel});
         part(flat, 0).copy_(a.mm(b));
         const Tensor product = a.mm(b * 3);
         const Tensor read = part(flat, 0).sum();
         part(flat, 0).copy_(product);
         return flat * read;
       },
       1},
      {"AllIsReadBetween",
       [](const Tensor& a, const Tensor& b) {
         const Tensor flat = at::empty({2 * kNumel});
         part(flat, 0).copy_(a.mm(b));
         part(flat, kNumel).copy_(a.mm(b + 2));
         const Tensor product = a.mm(b * 3);
         const Tensor read = flat.sum();
         part(flat, 0).copy_(product);
         return flat * read;
       },
       1},
      {"WrittenBetween",
       [](const Tensor& a, const Tensor& b) {
         const Tensor flat = at::empty({kNumel});
         const Tensor product = a.mm(b);
         part(flat, 0).copy_(a);
         const Tensor read = flat.sum();
         part(flat, 0).copy_(product);
         return flat * read;
       },
       2},  // a is an input
      {"ReadTwice",
       [](const Tensor& a, const Tensor& b) {
         const Tensor product = a.mm(b), flat = at::empty({kNumel});
         part(flat, 0).copy_(product);
         return flat * product.view({kNumel});
       },
       1},
      {"OffACacheLine",
       [](const Tensor& a, const Tensor& b) {
         const Tensor product = a.mm(b), flat = at::empty({kNumel + 1});
         flat.slice(0, 0, 1).copy_(a.slice(0, 0, 1).slice(1, 0, 1).reshape({1}));
         part(flat, 1).copy_(product);
         return flat * 2;
       },
       2},
      {"OfAnotherDtype",
       [](const Tensor& a, const Tensor& b) {
         const Tensor product = a.mm(b), flat = at::empty({kNumel}, at::kDouble);
         part(flat, 0).copy_(product);
         return flat * 2;
       },
       1},
      {"Transposed",
       [](const Tensor& a, const Tensor& b) {
         const Tensor product = a.mm(b), flat = at::empty({kNumel});
         flat.as_strided({kRows, kColumns}, {1, kRows}, 0).copy_(product);
         return flat * 2;
       },
       1},
  };
}

class ResultsInPlace : public ::testing::TestWithParam<Case> {};

TEST_P(ResultsInPlace, EqualEager) {
  const Case& c = GetParam();
  torch::manual_seed(1);
  Compiled function("the function", {.check = {.every = CheckOptions::kNever}});
  for (int i = 0; i < 6; ++i) {
    const Tensor x = torch::randn({kRows, kColumns}), y = torch::randn({kColumns, kColumns});
    const Tensor got = function({.inputs = {x, y}, .names = {"x", "y"}}, [&] {
                         return std::vector{c.function(x, y)};
                       }).front();
    EXPECT_TRUE(torch::equal(got, c.function(x, y))) << i;
  }
  ASSERT_EQ(function.report().replays.size(), 1);
  int64_t num_copies = 0;
  for (const auto& node : function.graph()->nodes()) {
    num_copies += node.opcode() == Opcode::kCallFunction && node.target() == "aten::copy_";
  }
  EXPECT_EQ(num_copies - function.report().replays.front().num_left_out, c.num_copies);
}

INSTANTIATE_TEST_SUITE_P(Table, ResultsInPlace, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(ResultsInPlaceMemory, TheResultHasNoMemoryOfItsOwn) {
  const auto module = levin::trace(
      [](const Tensor& a, const Tensor& b) {
        const Tensor product = a.mm(b), flat = at::empty({kNumel});
        part(flat, 0).copy_(product);
        return flat.sum();
      },
      {torch::randn({kRows, kColumns}), torch::randn({kColumns, kColumns})});
  EXPECT_LT(Replay(module.graph()).report().arena_bytes, 2 * kNumel * 4);
}

}  // namespace
}  // namespace results_in_place
