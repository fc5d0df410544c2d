#pragma once
// The table of training steps and compiled functions that replay is held to: each is an ordinary
// thing to write, and is run eager and replayed. A row says what is wanted of it.

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/data/sources/sources.h"
#include "levin/graph/replay/replay.h"
#include "levin/module/module.h"
#include "levin/optim/optim.h"
#include "levin/trainer/trainer.h"

namespace levin::test {

using Tensors = std::vector<at::Tensor>;

/// All but kFoundLater: the same bits as eager in all that the run leaves.
enum class Wanted {
  kEqual,     ///< replayed or refused
  kReplayed,  ///< and some of its steps are replayed
  kRefused,   ///< and a refusal says StepCase::word, of a line in StepCase::function
  /// Where it is not equal a refusal says so, within the run; checked at each step it is equal.
  kFoundLater,
};

enum class Category {
  kFirstReplay,     ///< what the host writes, tensors that are kept, generators, shared memory
  kKnownToLevin,    ///< numbers and modes that levin itself hands out or owns
  kHostStateLater,  ///< what the host decides otherwise from some step on
  kHostReads,       ///< the host reads what was computed, or makes a tensor anew in each step
  kCrashes,         ///< what has ended the process
  kOrdinary,
};
std::string to_string(Category category);

/// A module whose step is the row's. What it keeps is compared after each step.
struct Own : levin::Module {
  torch::nn::Sequential net{nullptr};
  std::map<std::string, at::Tensor> kept;
  Tensors list;
  std::map<std::string, int64_t> counts;  ///< the host's own, not compared
  std::map<std::string, double> numbers;  ///< the same
  std::map<std::string, std::shared_ptr<torch::nn::Module>> unregistered;
  at::Generator generator;
  std::optional<levin::StepValue> value;

  /// A child that the row has built.
  template <class Impl>
  Impl& part(const std::string& name) {
    return *std::dynamic_pointer_cast<Impl>(named_children()[name]);
  }
};

using Step = std::function<at::Tensor(Own&, const levin::Batch&, int64_t)>;

struct StepCase {
  std::string name;
  Step step;
  Wanted wanted = Wanted::kEqual;
  std::string word = {};      ///< of the refusal
  std::string function = {};  ///< whose line it names; "" where nothing tells one

  /// What there is beside net, or in its place.
  std::function<void(Own&)> build = {};
  std::function<levin::OptimizerConfig(Own&)> optimizer = {};
  std::function<void(levin::TrainerOptions&)> options = {};
  /// Before the batch, outside of the step: its number in the run counts from 0.
  std::function<void(Own&, levin::Trainer&, int64_t)> before = {};
  std::function<void(Own&)> on_epoch_start = {};
  /// Where it is not the module itself that is trained on these: see default_data().
  std::function<levin::DatasetPtr()> data = {};
  int64_t epochs = 3;
  int64_t batch_size = 8;
  bool is_manual = false;         ///< the step optimizes by itself
  std::string not_on_xla = {};    ///< why it gives something else there, as the docs say
  std::string error_on_xla = {};  ///< id of the error by which it is refused there
  bool takes_index = false;       ///< the step gets the index of its batch; else -1
  bool validates = false;
  bool crashes = false;  ///< today: such rows are run last

  Category category = Category::kOrdinary;  ///< set by step_cases()
};
void PrintTo(const StepCase& of, std::ostream* out);

/// Is wanted to be replayed, in more epochs than most.
StepCase replayed(StepCase row);

/// 48 samples: x [6], y (of 3 classes), t [1], tokens [6] (of 12), image [2, 6, 6].
levin::DatasetPtr default_data();
at::Tensor cross_entropy(const at::Tensor& logits, const levin::Batch& batch);
/// Of the net, as most rows begin.
at::Tensor plain_loss(Own& own, const levin::Batch& batch);

/// A compiled function with what it is called with.
struct Subject {
  std::function<Tensors(int64_t)> call;  ///< the number of the call, from 0; results are compared
  std::function<levin::graph::CompiledReport()> report;
  std::function<Tensors()> state = {};  ///< more that is compared, after each call
};

struct FunctionCase {
  std::string name;
  std::function<Subject(levin::Accelerator&)> make;
  Wanted wanted = Wanted::kEqual;
  std::string word = {};
  std::string function = {};
  int64_t calls = 16;
  bool crashes = false;

  Category category = Category::kOrdinary;
};
void PrintTo(const FunctionCase& of, std::ostream* out);

inline Tensors flattened(const at::Tensor& tensor) { return {tensor}; }
inline Tensors flattened(const Tensors& tensors) { return tensors; }
template <class... T>
Tensors flattened(const std::tuple<T...>& tuple) {
  return std::apply([](const auto&... each) { return Tensors{each...}; }, tuple);
}

/// An argument: normal numbers that are no step's, on the device of the run.
at::Tensor fresh(at::IntArrayRef sizes);
/// What fresh() gives from here on.
void begin_arguments(at::Device device);

/// The function compiled; arguments_of(i) gives the tuple of the i-th call's arguments.
template <class Function, class ArgumentsOf>
Subject subject(levin::Accelerator& accelerator, Function function, const ArgumentsOf& arguments_of,
                const std::function<Tensors()>& state = {}) {
  auto compiled =
      std::make_shared<levin::CompiledFunction<Function>>(accelerator.compile(std::move(function)));
  return {.call = [compiled, arguments_of](int64_t i) -> Tensors {
            return std::apply(
                [&](const auto&... arguments) -> Tensors {
                  if constexpr (std::is_void_v<decltype((*compiled)(arguments...))>) {
                    (*compiled)(arguments...);
                    return {};
                  } else {
                    return flattened((*compiled)(arguments...));
                  }
                },
                arguments_of(i));
          },
          .report = [compiled] { return compiled->report(); },
          .state = state};
}

/// Those that are refused today, in refusals.cpp.
void mark_refused(std::vector<StepCase>& all);
void mark_refused(std::vector<FunctionCase>& all);

std::vector<StepCase> step_cases();
std::vector<FunctionCase> function_cases();

// One list a source.
std::vector<StepCase> steps_with_host_writes();
std::vector<StepCase> steps_with_made();        ///< tensors of the host's numbers
std::vector<StepCase> steps_that_keep();        ///< tensors, or give shared ones
std::vector<StepCase> steps_with_random();      ///< generators
std::vector<StepCase> steps_with_numbers();     ///< that levin hands out
std::vector<StepCase> steps_with_modules();     ///< options, children, modes
std::vector<StepCase> steps_with_host_state();  ///< that changes later
std::vector<StepCase> steps_with_reads();       ///< by the host
std::vector<StepCase> steps_that_crash();
std::vector<StepCase> steps_as_advised();
std::vector<StepCase> ordinary_steps();
std::vector<StepCase> manual_steps();
std::vector<StepCase> checkpointed_steps();
std::vector<FunctionCase> functions_with_memory();
std::vector<FunctionCase> functions_with_inputs();
std::vector<FunctionCase> functions_with_host_state();
std::vector<FunctionCase> functions_with_reads();
std::vector<FunctionCase> functions_that_crash();
std::vector<FunctionCase> ordinary_functions();

}  // namespace levin::test
