// Indexing, gathers, scatters, embeddings, windows: elements chosen by tensors of indices.
#include "tests/xla/on_both_devices.h"

namespace {

using namespace levin::test;  // NOLINT
using at::indexing::Slice;

at::Tensor places(std::vector<int64_t> numbers, std::vector<int64_t> sizes) {
  return at::tensor(numbers, at::kLong).view(sizes);
}

OperatorTensors with_places() {
  return {torch::randn({4, 5, 3}, at::kDouble), places({0, 3, -1, 1}, {2, 2}),
          places({4, 0}, {2, 1}), torch::randn({2, 2, 3}, at::kDouble)};
}
OperatorTensors with_mask() {
  return {torch::randn({4, 5}, at::kDouble), torch::rand({4, 5}) > 0.5, torch::rand({4}) > 0.5,
          torch::randn({20}, at::kDouble)};
}
OperatorTensors along() {
  return {torch::randn({4, 5}, at::kDouble), places({0, 2, 1, 4, 3, 3, 0, 1}, {2, 4}),
          torch::randn({3, 5}, at::kDouble), places({1, 0, 2, 1, 3, 2}, {3, 2})};
}

std::vector<OperatorCase> by_tensors() {
  std::vector<OperatorCase> cases = {
      CASE("One", with_places, t[0].index({t[1]})),
      CASE("Adjacent", with_places, t[0].index({t[1], t[2]})),
      CASE("Apart", with_places, t[0].index({t[1], Slice(), t[1].remainder(3)})),
      CASE("Inner", with_places, t[0].index({Slice(), t[2]})),
      CASE("Of32Bits", with_places, t[0].index({t[1].to(at::kInt)})),
      CASE("OfNoPlaces", with_places, t[0].index({t[1].slice(0, 0, 0)})),
      CASE("Put", with_places, t[0].index_put({t[1], t[2]}, t[3])),
      CASE("PutOneValue", with_places, t[0].index_put({t[1]}, t[3].sum().to(t[0].scalar_type()))),
      CASE("PutAdding", with_places, t[0].index_put({t[1].abs().remainder(2), t[2]}, t[3], true)),
      CASE("PutInPlace", with_places,
           [&] {
             at::Tensor all = t[0].clone();
             all.index_put_({t[1], t[2]}, t[3]);
             all.select(2, 1).index_put_({t[1]}, t[3].select(0, 0).sum().to(t[0].scalar_type()),
                                         true);
             return all;
           }()),
      CASE("PutWhereMasked", with_mask,
           t[0].index_put({t[1]}, at::scalar_tensor(7.0, t[0].options())),
           t[0].index_put({t[2]}, at::scalar_tensor(7.0, t[0].options()), true)),
      CASE("MaskedFill", with_mask, t[0].masked_fill(t[1], 3.5),
           t[0].masked_fill(t[1], t[3].sum())),
      CASE("MaskedScatter", with_mask, t[0].masked_scatter(t[1], t[3])),
      CASE("Where", with_mask, at::where(t[1], t[0], t[3].slice(0, 0, 5)),
           at::where(t[1], t[0], 2.0)),
      CASE("Take", with_places, t[0].take(t[1]), t[0].put(t[1], t[3].select(2, 0))),
      CASE("PutAddingFlat", with_places, t[0].put(t[1].abs(), t[3].select(2, 0), true)),
  };
  for (const char* name :
       {"One", "Adjacent", "Put", "PutAdding", "MaskedScatter", "Where", "Take"}) {
    const auto of = std::ranges::find(cases, name, &OperatorCase::name);
    OperatorCase more = *of;
    more.name += "Gradient";
    more.with_gradients = true;
    cases.push_back(more);
  }
  for (OperatorCase& of : cases) {
    if (!of.with_gradients) of.dtypes = kNumbers;
  }
  return cases;
}

std::vector<OperatorCase> along_a_dimension() {
  std::vector<OperatorCase> cases = {
      CASE("Select", along, t[0].index_select(1, t[1].view({-1})),
           t[0].index_select(-2, t[3].select(1, 0))),
      CASE("SelectOfOne", along,
           t[0].sum().index_select(0, t[1].slice(1, 0, 1).slice(0, 0, 1).view({1}))),
      CASE("Add", along, t[0].index_add(0, t[3].select(1, 0), t[2]),
           t[0].index_add(0, t[3].select(1, 0), t[2], 2)),
      CASE("Copy", along, t[0].index_copy(0, t[3].select(1, 0), t[2])),
      CASE("Fill", along, t[0].index_fill(1, t[1].select(0, 0), 3),
           t[0].index_fill(0, t[3].select(1, 1), t[2].sum())),
      CASE("Gather", along, t[0].gather(0, t[1].remainder(4)), t[0].gather(1, t[1]),
           t[0].gather(-1, t[1].slice(1, 0, 1))),
      CASE("GatherOfNone", along, t[0].gather(0, t[1].slice(0, 0, 0))),
      CASE("Scatter", along, t[0].scatter(1, t[1], t[0].slice(1, 1, 5)),
           t[0].scatter(1, t[1], 2.0)),
      CASE("ScatterAdd", along, t[0].scatter_add(1, t[1], t[2]),
           t[0].scatter_add(0, t[3].slice(1, 0, 1), t[2])),
      CASE("ScatterReduceNamed", along, t[0].scatter(1, t[1], t[2], "add"),
           t[0].scatter(1, t[1], t[2], "multiply")),
      CASE("ScatterReduce", along, t[0].scatter_reduce(1, t[1], t[2], "sum"),
           t[0].scatter_reduce(1, t[1], t[2], "prod"), t[0].scatter_reduce(1, t[1], t[2], "mean"),
           t[0].scatter_reduce(1, t[1], t[2], "amax"), t[0].scatter_reduce(1, t[1], t[2], "amin")),
      CASE("ScatterReduceWithoutSelf", along, t[0].scatter_reduce(1, t[1], t[2], "sum", false),
           t[0].scatter_reduce(1, t[1], t[2], "prod", false),
           t[0].scatter_reduce(1, t[1], t[2], "mean", false),
           t[0].scatter_reduce(1, t[1], t[2], "amax", false),
           t[0].scatter_reduce(1, t[1], t[2], "amin", false)),
      CASE("OneHot", along, at::one_hot(t[1], 6)),
      CASE("Diagonal", along, t[0].diagonal(), t[0].diagonal(2), t[0].diagonal(-1),
           t[0].diagonal(9), t[0].diagonal(1, 1, 0)),
      CASE("DiagonalScatter", along, t[0].diagonal_scatter(t[2].select(0, 0).slice(0, 0, 4)),
           t[0].diagonal_scatter(t[2].select(0, 0).slice(0, 0, 3), -1)),
      CASE("Unfold", along, t[0].unfold(1, 3, 2), t[0].unfold(0, 2, 1), t[0].unfold(1, 5, 1)),
      CASE("UnfoldLong", drawn({{3, 200}}), t[0].unfold(1, 70, 30)),
      CASE("Roll", along, t[0].roll({1}, {0}), t[0].roll({-2, 3}, {0, 1}), t[0].roll(7)),
      CASE("Repeat", along, t[0].repeat({2, 3}), t[0].repeat({2, 1, 2}), t[0].repeat({0, 2}),
           at::tile(t[0], {2})),
      CASE("RepeatInterleave", along, at::repeat_interleave(t[0], 3, 1),
           at::repeat_interleave(t[0], 2)),
      CASE("Flip", along, t[0].flip({0, -1})),
      CASE("Triangles", along, t[0].triu(1), t[0].tril(-1)),
      CASE("IsIn", along, at::isin(t[1], t[3]), at::isin(t[1], t[3], false, true)),
  };
  const size_t count = cases.size();
  for (size_t i = 0; i < count; ++i) {
    // ATen itself has no gradient there, or one whose sizes depend on values (index_fill's).
    const std::string& name = cases[i].name;
    if (name == "OneHot" || name == "IsIn" || name == "Fill" || name.starts_with("Scatter"))
      continue;
    OperatorCase more = cases[i];
    more.name += "Gradient";
    more.with_gradients = true;
    cases.push_back(more);
  }
  static constexpr std::array kWithoutHalves = {at::kFloat, at::kDouble, at::kLong};
  for (OperatorCase& of : cases) {
    if (!of.with_gradients) of.dtypes = kNumbers;
    const bool rounds = of.name == "ScatterReduce" || of.name == "ScatterReduceWithoutSelf";
    if (rounds) of.dtypes = kWithoutHalves;
  }
  return cases;
}

OperatorTensors with_table() {
  return {torch::randn({40, 3}, at::kDouble), places({0, 3, 7, 3, 39, 2}, {2, 3}),
          places({0, 2, 2, 5}, {4}), torch::randn({6}, at::kDouble)};
}
OperatorTensors with_small_table() {
  return {torch::randn({5, 3}, at::kDouble), places({0, 3, 4, 3, 3, 2}, {2, 3}),
          places({0, 2, 2, 5}, {4}), torch::randn({6}, at::kDouble)};
}

std::vector<OperatorCase> of_tables() {
  std::vector<OperatorCase> cases;
  for (const auto& [size, table] :
       {std::pair{"", &with_table}, std::pair{"OfFewRows", &with_small_table}}) {
    const std::function<OperatorTensors()> from = table;
    const std::vector<OperatorCase> more = {
        CASE("Rows", from, at::embedding(t[0], t[1])),
        CASE("Padded", from, at::embedding(t[0], t[1], 3)),
        CASE("ByFrequency", from, at::embedding(t[0], t[1], -1, true)),
        CASE("BagSum", from, std::get<0>(at::embedding_bag(t[0], t[1].view({-1}), t[2]))),
        CASE("BagMean", from,
             std::get<0>(at::embedding_bag(t[0], t[1].view({-1}), t[2], false, 1))),
        CASE("BagMax", from, std::get<0>(at::embedding_bag(t[0], t[1].view({-1}), t[2], false, 2))),
        CASE("BagWeighted", from,
             std::get<0>(at::embedding_bag(t[0], t[1].view({-1}), t[2], false, 0, false, t[3]))),
        CASE("BagPadded", from,
             std::get<0>(
                 at::embedding_bag(t[0], t[1].view({-1}), t[2], false, 1, false, {}, false, 3))),
        CASE("BagWithLastOffset", from,
             std::get<0>(at::embedding_bag(t[0], t[1].view({-1}),
                                           at::cat({t[2], t[2].slice(0, 3, 4) + 1}), false, 0,
                                           false, {}, true))),
    };
    for (OperatorCase of : more) {
      of.name += size;
      of.with_gradients = true;
      of.dtypes = of.name.find("Bag") != std::string::npos ? kWide : kFloats;
      cases.push_back(of);
    }
  }
  cases.push_back(CASE("Renormalised", with_table, [&] {
    at::Tensor table = t[0].clone();
    return at::embedding_renorm_(table, t[1], 1.0, 2.0);
  }()));
  return cases;
}

class Indexing : public testing::TestWithParam<OperatorCase> {};
TEST_P(Indexing, EqualsAten) { expect_same_on_both(GetParam()); }

std::string index_name(const testing::TestParamInfo<OperatorCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(ByTensors, Indexing, testing::ValuesIn(by_tensors()), index_name);
INSTANTIATE_TEST_SUITE_P(AlongADimension, Indexing, testing::ValuesIn(along_a_dimension()),
                         index_name);
INSTANTIATE_TEST_SUITE_P(OfTables, Indexing, testing::ValuesIn(of_tables()), index_name);

}  // namespace
