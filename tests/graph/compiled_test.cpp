// A function that is recorded and replayed by itself, and what must stop it from that.
#include "levin/graph/compile/compiled.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/graph/compile/difference.h"
#include "levin/graph/record/trace.h"

namespace {

using levin::graph::CheckOptions;
using levin::graph::Compiled;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Results = std::vector<at::Tensor>;

at::Tensor input_of(int64_t call, int64_t rows = 4) {
  return torch::full({rows, 3}, static_cast<double>(call));
}

/// Calls it so often with other inputs, and compares each result with `wanted` of the input.
template <class Function, class Wanted>
void expect_results(Compiled& compiled, int64_t calls, const Function& function,
                    const Wanted& wanted) {
  for (int64_t i = 0; i < calls; ++i) {
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{function(x)}; });
    EXPECT_TRUE(torch::equal(results.at(0), wanted(x))) << "call " << i;
  }
}

at::Tensor twice(const at::Tensor& x) { return x * 2; }

TEST(Compiled, RunsRecordsTwiceAndReplays) {
  Compiled compiled("it");
  expect_results(compiled, 10, twice, twice);
  EXPECT_EQ(compiled.report().eager, 1);
  EXPECT_EQ(compiled.report().recorded, 2);
  EXPECT_EQ(compiled.report().checked, 3);  // the 1st, 2nd and 4th
  EXPECT_EQ(compiled.report().replayed, 4);
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  ASSERT_NE(compiled.graph(), nullptr);
  EXPECT_EQ(compiled.graph()->find_nodes("aten::mul").size(), 1U);
}

TEST(Compiled, RecordsAnewForOtherShapesAndNumbers) {
  Compiled compiled("it");
  for (int64_t i = 0; i < 24; ++i) {
    const at::Tensor x = input_of(i, /*rows=*/i % 3 == 0 ? 2 : 4);
    const double factor = i % 2;
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}, .guards = {{"factor", factor}}},
                 [&] { return Results{x * factor}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * factor)) << i;
  }
  EXPECT_EQ(compiled.report().replays.size(), 4U);
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_EQ(compiled.report().recorded, 8);
}

TEST(Compiled, StopsAtSoManyRecordings) {
  Compiled compiled("it", {.max_recordings = 3});
  for (int64_t i = 0; i < 20; ++i) {
    const at::Tensor x = input_of(i, /*rows=*/i + 1);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{twice(x)}; });
    EXPECT_TRUE(torch::equal(results.at(0), twice(x))) << i;
  }
  EXPECT_EQ(compiled.report().recorded, 3);
  ASSERT_EQ(compiled.report().refusals.size(), 1U);
  EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("x is f32[5, 3]"));
}

TEST(Compiled, DoesAgainWhatTheFunctionDoesOnTheHost) {
  Compiled compiled("it", {.check = {.every = CheckOptions::kNever}});
  std::vector<std::string> done;
  std::vector<double> seen;
  int64_t calls = 0;
  const auto function = [&](const at::Tensor& x) {
    ++calls;
    const at::Tensor sum = x.sum();
    if (auto* recording = compiled.recording()) {
      recording->before([&] { done.emplace_back("before"); });
      recording->after([&] { done.emplace_back("after"); });
      recording->with(sum, [&](const at::Tensor& now) {
        done.emplace_back("with");
        seen.push_back(now.item<double>());
      });
    }
    return sum * 1;
  };
  expect_results(compiled, 5, function, [](const at::Tensor& x) { return x.sum(); });
  EXPECT_EQ(calls, 3);
  // Called, it does "before" and "after" itself.
  EXPECT_THAT(done, ElementsAre("with", "with", "with", "before", "with", "after", "before", "with",
                                "after"));
  EXPECT_THAT(seen, ElementsAre(0.0, 12.0, 24.0, 36.0, 48.0));
}

TEST(Compiled, SaysAReasonThatNoShapeCanCureOnce) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> functions = {
      [](const at::Tensor& x) {  // which [4, 3] the host writes
        const at::Tensor y = x * 2;
        y.data_ptr<float>()[0] = 0;
        return y + 1;
      },
      [](const at::Tensor& x) { return x * x.sum().item<double>(); },
      [](const at::Tensor& x) { return x.to_sparse().to_dense(); }};
  for (const auto& function : functions) {
    Compiled compiled("it");
    for (int64_t i = 0; i < 24; ++i) {
      const at::Tensor x = input_of(i + 1, /*rows=*/i % 2 == 0 ? 2 : 4);
      const Results results =
          compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{function(x)}; });
      EXPECT_TRUE(torch::equal(results.at(0), function(x))) << i;
    }
    EXPECT_THAT(compiled.report().refusals, ElementsAre(HasSubstr("TestBody")));
    EXPECT_EQ(compiled.report().replayed, 0);
  }
}

// Whatever stops it, the results are right.

struct Trouble {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, int64_t call, Compiled& compiled)> function;
  std::string reason;
  std::string place;  ///< the function whose line it names
};
std::ostream& operator<<(std::ostream& out, const Trouble& trouble) { return out << trouble.name; }

class CompiledTrouble : public ::testing::TestWithParam<Trouble> {};

TEST_P(CompiledTrouble, IsNamedAndTheFunctionGoesOn) {
  Compiled compiled("it"), unused("none");
  for (int64_t i = 0; i < 12; ++i) {
    const at::Tensor x = input_of(i);
    const Results results = compiled({.inputs = {x}, .names = {"x"}},
                                     [&] { return Results{GetParam().function(x, i, compiled)}; });
    EXPECT_TRUE(torch::equal(results.at(0), GetParam().function(x, i, unused))) << "call " << i;
  }
  EXPECT_EQ(compiled.report().replayed, 0);
  ASSERT_EQ(compiled.report().refusals.size(), 1U);
  EXPECT_THAT(compiled.report().refusals.front(),
              AllOf(HasSubstr(GetParam().reason), HasSubstr(" in " + GetParam().place)));
}

at::Tensor read_by_the_host(const at::Tensor& x, int64_t, Compiled&) {
  return x * x.sum().item<double>();
}
at::Tensor sized_by_values(const at::Tensor& x, int64_t, Compiled&) {
  return torch::arange(12.0).lt(x[0][0]).nonzero().sum() + x;  // of another size in each call
}
at::Tensor number_of_the_host(const at::Tensor& x, int64_t call, Compiled&) {
  return x * static_cast<double>(call);
}
at::Tensor branch_of_the_host(const at::Tensor& x, int64_t call, Compiled&) {
  return call % 2 == 0 ? x + 1 : x * 2;
}
at::Tensor written_by_the_host(const at::Tensor& x, int64_t call, Compiled&) {
  return x + torch::tensor({1.0F, 2.0F, static_cast<float>(call)});
}
at::Tensor refused(const at::Tensor& x, int64_t, Compiled& compiled) {
  if (auto* recording = compiled.recording()) recording->refuse("a reason of its own");
  return x + 1;
}
at::Tensor sparse(const at::Tensor& x, int64_t, Compiled&) { return x.to_sparse().to_dense(); }
at::Tensor keeps_each(const at::Tensor& x, int64_t, Compiled& compiled) {
  static Results list;
  const at::Tensor twice = x * 2;
  if (compiled.recording() != nullptr) list.push_back(twice);
  return twice + 1;
}
at::Tensor depends_on_each_call(const at::Tensor& x, int64_t, Compiled& compiled) {
  static double number = 0;
  if (auto* recording = compiled.recording()) {
    recording->depends_on("a number that grows", [] { return ++number; });
  }
  return x + 3;
}

INSTANTIATE_TEST_SUITE_P(
    Compiled, CompiledTrouble,
    ::testing::Values(
        Trouble{"ReadByTheHost", read_by_the_host,
                "the host reads the result of aten::_local_scalar_dense", "read_by_the_host"},
        Trouble{"SizedByValues", sized_by_values, "the host reads the result of aten::nonzero",
                "sized_by_values"},
        Trouble{"NumberOfTheHost", number_of_the_host, "its other was", "number_of_the_host"},
        Trouble{"BranchOfTheHost", branch_of_the_host, "was aten::", "branch_of_the_host"},
        Trouble{"WrittenByTheHost", written_by_the_host, "its value was", "written_by_the_host"},
        Trouble{"Refused", refused, "a reason of its own", "refused"},
        Trouble{"Sparse", sparse, "layout", "sparse"},
        Trouble{"KeepsEach", keeps_each,
                "it keeps a tensor of each call, the result of aten::mul.Scalar", "keeps_each"},
        Trouble{"DependsOnEachCall", depends_on_each_call, "a number that grows",
                "depends_on_each_call"}),
    [](const auto& info) { return info.param.name; });

TEST(Compiled, NamesATensorThatIsNewInEachCall) {
  Compiled compiled("it");
  at::Tensor mask;
  for (int64_t i = 0; i < 8; ++i) {
    mask = torch::full({3}, static_cast<double>(i));
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * mask}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * mask)) << i;
  }
  ASSERT_EQ(compiled.report().refusals.size(), 1U);
  EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("is another tensor"));
}

TEST(Compiled, NamesATensorThatWasComputedBefore) {
  Compiled compiled("it");
  const at::Tensor weight = torch::ones({3}, torch::requires_grad());
  for (int64_t i = 0; i < 6; ++i) {
    const at::Tensor stale = weight * 2;
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * stale}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * 2)) << i;
  }
  ASSERT_EQ(compiled.report().refusals.size(), 1U);
  EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("computed before"));
}

TEST(Compiled, RecordsAnewWhereStateHasMoved) {
  Compiled compiled("it", {.check = {.every = CheckOptions::kNever}});
  at::Tensor weight = torch::ones({3});
  const auto call = [&](int64_t i) {
    const at::Tensor x = input_of(i);
    return compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * weight}; }).at(0);
  };
  for (int64_t i = 0; i < 6; ++i) call(i);
  EXPECT_EQ(compiled.report().replayed, 3);
  weight.set_data(torch::full({3}, 5.0));
  for (int64_t i = 6; i < 12; ++i) EXPECT_TRUE(torch::equal(call(i), input_of(i) * 5)) << i;
  EXPECT_EQ(compiled.report().recorded, 4);
  EXPECT_EQ(compiled.report().replayed, 7);
}

TEST(Compiled, AnExceptionLeavesItAsItWas) {
  Compiled compiled("it");
  const auto throws = [](const at::Tensor& x) -> at::Tensor {
    if (x.size(0) > 0) throw std::runtime_error("of the user's");
    return x;
  };
  for (int64_t i = 0; i < 4; ++i) {
    const at::Tensor x = input_of(i);
    EXPECT_THROW(compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{throws(x)}; }),
                 std::runtime_error);
    EXPECT_EQ(compiled.recording(), nullptr);
  }
  expect_results(compiled, 4, twice, twice);
}

TEST(Compiled, AnInputThatIsGivenTwiceRunsAsItIs) {
  Compiled compiled("it");
  for (int64_t i = 0; i < 6; ++i) {
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x, x}, .names = {"x", "y"}}, [&] { return Results{x + x}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * 2));
  }
  EXPECT_EQ(compiled.report().replayed, 0);
  EXPECT_THAT(compiled.report().refusals.front(), HasSubstr("shares memory"));
}

/// An operator that only its author knows: it has no rule for shapes, and needs none.
at::Tensor tile_twice(const at::Tensor& x) { return torch::cat({x, x}).contiguous(); }
TORCH_LIBRARY(levin_test_compiled, library) {
  library.def("tile_twice(Tensor x) -> Tensor");
  library.impl("tile_twice", torch::dispatch(c10::DispatchKey::CPU, &tile_twice));
}

TEST(Compiled, ReplaysAnOperatorOfTheUsers) {
  Compiled compiled("it");
  const auto own = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("levin_test_compiled::tile_twice", "")
                       .typed<at::Tensor(const at::Tensor&)>();
  expect_results(
      compiled, 8, [&](const at::Tensor& x) { return own.call(x) * 2; },
      [](const at::Tensor& x) { return tile_twice(x) * 2; });
  EXPECT_EQ(compiled.report().checked, 3);  // the 1st, 2nd and 4th
  EXPECT_EQ(compiled.report().replayed, 2);
}

// What a replay does not call.

/// Calls it so often with the number as an argument; the results must be the function's.
template <class Function>
void expect_results_of(Compiled& compiled, const std::vector<int64_t>& numbers,
                       const Function& function) {
  for (size_t call = 0; call < numbers.size(); ++call) {
    const at::Tensor x = input_of(static_cast<int64_t>(call));
    const int64_t number = numbers[call];
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}, .arguments = {{"number", number}}},
                 [&] { return Results{function(x, number)}; });
    EXPECT_TRUE(torch::equal(results.at(0), function(x, number))) << "call " << call;
  }
}

std::vector<int64_t> epochs_of(int64_t batches, int64_t epochs) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < batches * epochs; ++i) numbers.push_back(i % batches);
  return numbers;
}

TEST(CompiledArguments, ThatAreNotReadShareOneRecording) {
  Compiled compiled("it");
  expect_results_of(compiled, epochs_of(10, 4), [](const at::Tensor& x, int64_t) { return x * 2; });
  EXPECT_EQ(compiled.report().replays.size(), 1U);
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GT(compiled.report().replayed, 20);
}

TEST(CompiledArguments, ThatDecideHaveARecordingForEachThingThatIsDone) {
  Compiled compiled("it");
  expect_results_of(compiled, epochs_of(12, 4),
                    [](const at::Tensor& x, int64_t i) { return i % 5 == 0 ? x - 1 : x * 2; });
  EXPECT_EQ(compiled.report().replays.size(), 2U);
  EXPECT_THAT(compiled.report().refusals, IsEmpty());
  EXPECT_GT(compiled.report().replayed, 20);
}

TEST(CompiledArguments, AreExact) {
  Compiled compiled("it");
  const int64_t big = int64_t{1} << 53;
  expect_results_of(compiled, {big, big, big, big, big + 1, big + 1, big, big + 1},
                    [&](const at::Tensor& x, int64_t i) { return i == big ? x - 1 : x * 2; });
}

TEST(CompiledArguments, ThatAreANumberOfTheStepEndIt) {
  Compiled compiled("it");
  expect_results_of(compiled, epochs_of(20, 2),
                    [](const at::Tensor& x, int64_t i) { return x * static_cast<double>(i); });
  EXPECT_THAT(compiled.report().refusals,
              ElementsAre(HasSubstr("each call differs from the recordings")));
}

TEST(CompiledCheck, FindsWhatTheHostChangesLater) {
  Compiled compiled("it");
  double factor = 2.0;
  int64_t wrong = 0;
  for (int64_t i = 0; i < 40; ++i) {
    if (i == 13) factor = 3.0;
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * factor}; });
    wrong += torch::equal(results.at(0), x * factor) ? 0 : 1;
  }
  // Calls 3, 4, 6, 10, 18 are checks.
  EXPECT_EQ(wrong, 5);
  ASSERT_EQ(compiled.report().refusals.size(), 1U);
  EXPECT_THAT(
      compiled.report().refusals.front(),
      AllOf(HasSubstr("at step 18 it differs"), HasSubstr("its other was 2.0 and is 3.0"),
            HasSubstr("it was last compared at step 10,"), HasSubstr("the 7 replays since then"),
            HasSubstr("FindsWhatTheHostChangesLater")));
}

TEST(CompiledCheck, SaysTheStepsOfItsCaller) {
  Compiled compiled("it");
  double factor = 2.0;
  for (int64_t i = 0; i < 20; ++i) {
    if (i == 13) factor = 3.0;
    const at::Tensor x = input_of(i);
    compiled({.inputs = {x}, .names = {"x"}, .step = 100 + i}, [&] { return Results{x * factor}; });
  }
  EXPECT_THAT(compiled.report().refusals,
              ElementsAre(AllOf(HasSubstr("at step 118 it differs"),
                                HasSubstr("it was last compared at step 110,"))));
}

TEST(CompiledCheck, CountsTheReplaysOfAllRecordings) {
  Compiled compiled("it");
  double factor = 2.0;
  for (int64_t i = 0; i < 40; ++i) {
    if (i == 30) factor = 3.0;
    const at::Tensor x = input_of(i, /*rows=*/i < 12 || i == 30 ? 2 : 4);
    if (i == 30) compiled.check_next();
    compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * factor}; });
  }
  // Of two rows calls 3, 4, 6, 10 are checks; of four 12 and 13 are recorded, 14, 15, 17, 21, 29 checks.
  EXPECT_THAT(compiled.report().refusals,
              ElementsAre(AllOf(HasSubstr("at step 30 it differs"),
                                HasSubstr("it was last compared at step 10,"),
                                HasSubstr("the 12 replays since then"))));
}

TEST(CompiledCheck, OfEachCallIsNeverWrong) {
  Compiled compiled("it", {.check = {.every = 1}});
  double factor = 2.0;
  for (int64_t i = 0; i < 20; ++i) {
    if (i == 13) factor = 3.0;
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * factor}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * factor)) << i;
  }
  EXPECT_EQ(compiled.report().replayed, 0);
  EXPECT_EQ(compiled.report().checked, 10);
  EXPECT_EQ(compiled.report().refusals.size(), 1U);
}

TEST(CompiledCheck, MayEndTheRun) {
  Compiled compiled("it", {.check = {.every = 4, .stops = true}});
  double factor = 2.0;
  const auto call = [&](int64_t i) {
    const at::Tensor x = input_of(i);
    compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * factor}; });
  };
  for (int64_t i = 0; i < 4; ++i) call(i);
  factor = 3.0;
  for (int64_t i = 4; i < 6; ++i) call(i);
  EXPECT_THAT([&] { call(6); },
              ::testing::ThrowsMessage<levin::Error>(
                  AllOf(HasSubstr("graph.check"), HasSubstr("its other was 2.0 and is 3.0"))));
}

TEST(CompiledCheck, ComesNextWhereItIsAskedFor) {
  Compiled compiled("it");
  double factor = 2.0;
  for (int64_t i = 0; i < 30; ++i) {
    if (i == 20) {
      factor = 3.0;
      compiled.check_next();
    }
    const at::Tensor x = input_of(i);
    const Results results =
        compiled({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * factor}; });
    EXPECT_TRUE(torch::equal(results.at(0), x * factor)) << i;
  }
}

TEST(Compiled, IsAPartOfTheFunctionThatCallsIt) {
  Compiled inner("inner"), outer("outer");
  for (int64_t i = 0; i < 12; ++i) {
    const at::Tensor x = input_of(i);
    const Results results = outer({.inputs = {x}, .names = {"x"}}, [&] {
      return Results{inner({.inputs = {x}, .names = {"x"}}, [&] { return Results{x * 2}; }).at(0) +
                     1};
    });
    EXPECT_TRUE(torch::equal(results.at(0), x * 2 + 1)) << i;
  }
  EXPECT_THAT(outer.report().refusals, IsEmpty());
  EXPECT_GT(outer.report().replayed, 3);
}

TEST(Compiled, KeepsRecordingsOfInputsWithGradientsApart) {
  Compiled compiled("it");
  for (int64_t i = 0; i < 16; ++i) {
    const at::Tensor x = input_of(i + 1).set_requires_grad(i % 2 == 0);
    const auto function = [&] { return Results{x.requires_grad() ? x.detach() * 2 : x * 3}; };
    const Results results = compiled({.inputs = {x}, .names = {"x"}}, function);
    EXPECT_TRUE(torch::equal(results.at(0), function().at(0))) << i;
  }
}

TEST(Difference, IsNoneBetweenTwoRecordingsOfOneFunction) {
  const torch::nn::Linear linear(3, 2);
  const auto traced = [&](double factor) {
    return levin::trace([&](const at::Tensor& x) { return linear->weight.mul(factor).sum() + x; },
                        {torch::ones({2})});
  };
  const auto one = traced(0.1), same = traced(0.1), other = traced(0.2);
  EXPECT_FALSE(levin::graph::first_difference(one.graph(), same.graph()));
  const auto difference = levin::graph::first_difference(one.graph(), other.graph());
  ASSERT_TRUE(difference);
  EXPECT_THAT(difference->text, HasSubstr("its other was 0.1 and is 0.2"));
  EXPECT_FALSE(difference->is_read);
}

TEST(Difference, IsOfAReadWhereTheHostReadAnotherValue) {
  const auto traced = [](double number) {
    return levin::trace(
        [](const at::Tensor& x) { return x.sum().item<double>() > 2 ? x * 2 : x * 3; },
        {torch::full({2}, number)}, {.allow_host_reads = true});
  };
  const auto one = traced(0.5), same = traced(0.5), other = traced(2.0);
  EXPECT_FALSE(levin::graph::first_difference(one.graph(), same.graph()));
  const auto difference = levin::graph::first_difference(one.graph(), other.graph());
  ASSERT_TRUE(difference);
  EXPECT_THAT(difference->text, HasSubstr("the host read 1.0 and reads 4.0"));
  EXPECT_TRUE(difference->is_read);
}

}  // namespace
