// Tensors that the step makes of numbers of the host, by LibTorch's factories.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_made {

namespace F = torch::nn::functional;
using at::Tensor;

using Make = std::function<Tensor(Own&)>;

/// The net sees x with what is made, the same in each step.
StepCase adding(const std::string& name, const Make& make, Wanted wanted = Wanted::kReplayed) {
  return {.name = name,
          .step =
              [make](Own& own, const Batch& batch, int64_t) {
                const Tensor made = make(own).to(batch["x"].device(), torch::kFloat);
                return cross_entropy(own.net->forward(batch["x"] + made), batch);
              },
          .wanted = wanted,
          .epochs = 4};
}

/// Made of a number that is another one in each step.
StepCase adding_anew(const std::string& name, const std::function<Tensor(double)>& make,
                     const std::string& word) {
  StepCase row = adding(
      name, [make](Own& own) { return make(0.1 * static_cast<double>(++own.counts["calls"])); },
      Wanted::kRefused);
  row.word = word;
  row.function = "rows_of_step_made::all";
  return row;
}

std::vector<StepCase> all() {
  return {
      adding("AListOfFloats",
             [](Own&) { return torch::tensor({0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F}); }),
      adding("AListOfOneFloat", [](Own&) { return torch::tensor({0.25F}); }),
      adding("AListOfInts", [](Own&) { return torch::tensor({1, 0, 2, 0, 3, 0}); }),
      adding("AListOfBools",
             [](Own&) { return torch::tensor({true, false, true, false, true, false}); }),
      adding("AListOfLists",
             [](Own&) {
               return torch::tensor(
                   {{0.5F}, {1.5F}, {2.5F}, {3.5F}, {4.5F}, {5.5F}, {6.5F}, {7.5F}});
             }),
      adding("AListInHalf",
             [](Own&) { return torch::tensor({0.5, 0.25, 0.125, 1.0, 2.0, 4.0}, torch::kHalf); }),
      adding("AVector",
             [](Own&) { return torch::tensor(std::vector<double>{0.1, 0.2, 0.3, 0.4, 0.5, 0.6}); }),
      adding("OneNumber", [](Own&) { return torch::tensor(0.5F); }),
      adding("OneNumberOfNoDimensions", [](Own&) { return torch::scalar_tensor(0.5); }),
      adding("AListThatIsWrittenInPlace",
             [](Own&) { return torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}).mul_(0.1); }),
      adding("AListThatTheHostWritesInto",
             [](Own&) {
               Tensor list = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F});
               list.data_ptr<float>()[2] = 0.5F;
               return list;
             }),
      adding(
          "AnEmptyTensorThatTheHostAndOperatorsFill",
          [](Own&) {
            Tensor made = torch::empty({6});
            for (int64_t i = 0; i < 3; ++i) made.data_ptr<float>()[i] = 0.5F;
            made.slice(0, 3).fill_(2);
            return made;
          },
          /*what was there in the other half is no part of it*/ Wanted::kEqual),
      adding("AnEmptyTensorThatOperatorsFillInParts",
             [](Own&) {
               Tensor made = torch::empty({6});
               made.slice(0, 0, 2).fill_(0.5);
               made.slice(0, 2, 5).zero_();
               made[5].copy_(torch::tensor(3.0F));
               return made;
             }),
      adding("AnEmptyTensorThatOperatorsAndThenTheHostFill",
             [](Own&) {
               Tensor made = torch::empty({6});
               made.slice(0, 3).fill_(2);
               for (int64_t i = 0; i < 3; ++i) made.data_ptr<float>()[i] = 0.5F;
               return made;
             }),
      {.name = "ClassWeightsByAList",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             return F::cross_entropy(own.net->forward(batch["x"]), batch["y"],
                                     F::CrossEntropyFuncOptions().weight(
                                         torch::tensor({1.0F, 2.0F, 0.5F}).to(batch["x"])));
           },
       .wanted = Wanted::kReplayed,
       .epochs = 4},
      {.name = "ColumnsByAList",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor places = torch::tensor({5, 4, 3, 2, 1, 0}).to(batch["x"].device());
             return cross_entropy(own.net->forward(batch["x"].index_select(1, places)), batch);
           },
       .wanted = Wanted::kReplayed,
       .epochs = 4},
      adding_anew(
          "AListOfANumberThatChanges",
          [](double number) { return torch::tensor({number, 0.0, 1.0, 0.0, number, 0.0}); },
          "its value was"),
      adding_anew(
          "AVectorOfANumberThatChanges",
          [](double number) { return torch::tensor(std::vector<double>(6, number)); },
          "the host wrote other numbers"),
      adding_anew(
          "OneNumberThatChanges", [](double number) { return torch::tensor(number); }, "its s was"),
  };
}

}  // namespace rows_of_step_made

std::vector<StepCase> steps_with_made() { return rows_of_step_made::all(); }

}  // namespace levin::test
