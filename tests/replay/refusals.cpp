// Which rows are refused, by what words, and in which function of the row's code that is.
#include <map>

#include "tests/replay/cases.h"

namespace levin::test {
namespace {

struct Refusal {
  const char* row;
  const char* word;
  const char* function;  ///< of levin::test; "" where no operator stands for it
};

const Refusal kOfSteps[] = {
    {"MaskByAccessorOnRand", "the host wrote other numbers", "rows_of_step_written::masked:"},
    {"MaskByAccessorOnClone", "that an operator has read or made", "rows_of_step_written::masked"},
    {"DoubledByPointerInACustomFunction", "the host wrote other numbers",
     "rows_of_step_written::masked:"},
    {"HiddenDoubledByPointerInACustomFunction", "the host wrote other numbers", "cross_entropy"},
    {"BackwardByPointerInACustomFunction", "the host wrote other numbers", ""},
    {"GradientsHalvedByPointer", "that an operator has read or made", "rows_of_step_written::all"},
    {"WeightsClampedByPointer", "into a parameter or buffer", "plain_loss"},
    {"BufferCountedByAccessor", "into a parameter or buffer", "rows_of_step_written::all"},
    {"InputsCloneWrittenByAccessor", "the host wrote other numbers", "rows_of_step_written::all:"},
    {"InputWrittenByAccessor", "that an operator has read or made", "plain_loss"},
    {"KeepsTheLastThree", "it keeps a tensor of each call", "cross_entropy"},
    {"KeepsARunningSum", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsTheSmallestLoss", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsConfusion", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsItsBatch", "it keeps its input", ""},
    {"KeepsTheBatchBefore", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"DistilsFromTheStepBefore", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsAHiddenState", "it keeps a tensor of each call", ""},
    {"KeepsABaselineOfItsLoss", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsAGradient", "it keeps a tensor of each call", "rows_of_step_kept::manual"},
    {"KeepsTheGradientBefore", "it keeps a tensor of each call", "rows_of_step_kept::all"},
    {"KeepsTheNormOfClipping", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_kept::all"},
    {"SeedsTheDefaultGenerator", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"SeedsTheDefaultGeneratorByItsBatch", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"SeedsTheDefaultGeneratorAfterADraw", "the host seeds a random generator",
     "rows_of_step_random::scaled"},
    {"SeedsTheDefaultGeneratorByTheStep", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"SeedsAnOwnGenerator", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"SeedsAnOwnGeneratorBetweenTwoDraws", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"SeedsAnOwnGeneratorByACount", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"MakesANewGenerator", "is another random generator", "rows_of_step_random::by_generators:"},
    {"MakesANewGeneratorByItsBatch", "is another random generator",
     "rows_of_step_random::by_generators:"},
    {"MakesANewGeneratorByTheStep", "it reads global_step()", "rows_of_step_random::by_generators"},
    {"MakesANewGeneratorAndKeepsIt", "is another random generator",
     "rows_of_step_random::by_generators:"},
    {"ClonesAGenerator", "is another random generator", "rows_of_step_random::by_generators:"},
    {"PutsAGeneratorsStateBack", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"PutsTheDefaultGeneratorsStateBack", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"TheHostDrawsFromTheDefaultGenerator", "the host seeds a random generator",
     "rows_of_step_random::scaled"},
    {"TheHostDrawsAndDropsTheNumber", "the host seeds a random generator",
     "rows_of_step_random::by_generators"},
    {"TheHostDrawsFromStd", "its fill_value was", "rows_of_step_random::by_generators:"},
    {"TheHostsNumbersOfStdAsATensor", "the host wrote other numbers",
     "rows_of_step_random::scaled:"},
    {"GanEveryThirdStep", "it reads global_step() after a step",
     "rows_of_step_numbers::with_counts"},
    {"GanFromTheSecondEpoch", "it reads current_epoch() after a step",
     "rows_of_step_numbers::with_counts"},
    {"GanByTheOptimizersRate", "it reads learning_rate() after a step",
     "rows_of_step_numbers::with_counts"},
    {"FromTheThirdEpoch", "it reads current_epoch()", "rows_of_step_numbers::with_counts"},
    {"OddEpochs", "it reads current_epoch()", "rows_of_step_numbers::with_counts"},
    {"FromTheTenthStep", "it reads global_step()", "rows_of_step_numbers::with_counts"},
    {"EveryFourthStep", "it reads global_step()", "rows_of_step_numbers::with_counts"},
    {"KlWarmUpByTheStep", "it reads global_step()", "rows_of_step_numbers::with_counts"},
    {"EpochAsWeight", "it reads current_epoch()", "rows_of_step_numbers::with_counts"},
    {"TwoFieldsThatAreOne", "shares memory with an earlier one", ""},
    {"AFieldThatIsAViewOfAnother", "shares memory with an earlier one", ""},
    {"PackedLstmOfLengthsInTheBatch", "the host reads the result of aten::_pack_padded_sequence",
     "rows_of_step_reads::of_layers"},
    {"BranchesOnItsLoss", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"BranchesOnItsBatch", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"WeighsByItsOwnLoss", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"OneHotByAccessor", "the host wrote other numbers", "rows_of_step_reads::of_the_users:"},
    {"PaddingMaskByAccessor", "the host wrote other numbers", "rows_of_step_reads::of_the_users:"},
    {"SkipsBatchesOfHighLoss", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"LoopsOverItsTensor", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"ClipsAsTorchDoes", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"ACoinOfATensor", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"ACoinOfATensorThatIsRare", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"ANumberOfATensorAsWeight", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"KeepsTheNumberOfItsLoss", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"SumsTheNumbersOfItsLoss", "the host reads the result of aten::_local_scalar_dense",
     "rows_of_step_reads::of_the_users"},
    {"LogsTheNumberOfItsLoss", "training_step logs 'loss'", "rows_of_step_reads::of_the_users"},
    {"AMaskOfTheHostInEachStep", "the host wrote other numbers",
     "rows_of_step_reads::of_the_users:"},
    {"AMaskFromABlobInEachStep", "that operators use", ""},
    {"AMaskByAccessorOtherwiseInEachStep", "the host wrote other numbers",
     "rows_of_step_reads::of_the_users:"},
    {"AMaskOfTheHostMovedToTheDevice", "the host wrote other numbers",
     "rows_of_step_reads::of_the_users:"},
    {"APermutationOfTheHost", "the host wrote other numbers", "rows_of_step_reads::of_the_users:"},
    {"TheDefaultDtypeChangesWithinAStep", "the default dtype was changed", ""},
    {"ABatchOfOneTensorTwice", "shares memory with an earlier one", ""},
    {"ABatchOfATensorAndItsTransposed", "shares memory with an earlier one", ""},
    {"ABatchOfTheModulesOwnBuffer", "it keeps its input", ""},
};

const Refusal kOfFunctions[] = {
    {"ManyNumbers", "there are 16 recordings of it", ""},
    {"ResultByMemcpyOfItsInput", "the host wrote other numbers",
     "rows_of_function_memory::written:"},
    {"InputWrittenByPointer", "that an operator has read or made",
     "rows_of_function_memory::written"},
    {"WrittenBetweenTwoOperators", "that an operator has read or made",
     "rows_of_function_memory::written"},
    {"TwoResultsThatShare", "shares memory with another result", ""},
    {"ThreePartsOfOne", "shares memory with another result", ""},
    {"KeepsAListThatGrows", "it keeps a tensor of each call", "rows_of_function_memory::kept"},
    {"KeepsASum", "it keeps a tensor of each call", "rows_of_function_memory::kept"},
    {"KeepsItsInput", "it keeps its input", ""},
    {"KeepsAViewOfItsInput", "it keeps its input", ""},
    {"SeedsTheDefaultGenerator", "the host seeds a random generator",
     "rows_of_function_memory::generators"},
    {"ANewGenerator", "is another random generator", "rows_of_function_memory::generators:"},
    {"AnOwnGeneratorThatIsSeeded", "the host seeds a random generator",
     "rows_of_function_memory::generators"},
    {"OneTensorTwice", "shares memory with an earlier one", ""},
    {"OneTensorTwiceAtFirst", "shares memory with an earlier one", ""},
    {"ATensorAndItsView", "shares memory with an earlier one", ""},
    {"ATensorAndItsTransposed", "shares memory with an earlier one", ""},
    {"TensorsThatOverlap", "shares memory with an earlier one", ""},
    {"NegatedFromTheStart", "a lazy conjugate or negative", ""},
    {"Item", "the host reads the result of aten::_local_scalar_dense", "functions_with_reads"},
    {"ItemBranch", "the host reads the result of aten::_local_scalar_dense",
     "functions_with_reads"},
    {"PointerBranch", "its other was", "functions_with_reads:"},
    {"TensorOfItsNumbers", "the host reads the result of aten::_local_scalar_dense",
     "functions_with_reads"},
    {"TensorOfTheHostInEachCall", "the host wrote other numbers", "functions_with_reads:"},
    {"BlobOfTheHostInEachCall", "that operators use", ""},
    {"AccessorInEachCall", "the host wrote other numbers", "functions_with_reads:"},
    {"LoopByItsRate", "it reads learning_rate()", "rows_of_function_ordinary::loops"},
    {"LoopByItsSteps", "it reads steps()", "rows_of_function_ordinary::loops"},
    {"LoopEveryFifthStep", "it reads steps()", "rows_of_function_ordinary::loops"},
};

template <class Case, size_t kCount>
void mark(std::vector<Case>& all, const Refusal (&refusals)[kCount]) {
  std::map<std::string, const Refusal*> by_row;
  for (const Refusal& refusal : refusals) by_row[refusal.row] = &refusal;
  for (Case& one : all) {
    const auto known = by_row.find(one.name);
    if (known == by_row.end()) continue;
    one.wanted = Wanted::kRefused;
    one.word = known->second->word;
    one.function = known->second->function;
  }
}

}  // namespace

void mark_refused(std::vector<StepCase>& all) { mark(all, kOfSteps); }
void mark_refused(std::vector<FunctionCase>& all) { mark(all, kOfFunctions); }

}  // namespace levin::test
