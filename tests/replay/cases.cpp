#include "tests/replay/cases.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

namespace levin::test {
namespace {

template <class Case>
void take(std::vector<Case>& all, std::vector<Case> more, Category category) {
  for (Case& one : more) {
    one.category = category;
    all.push_back(std::move(one));
  }
}

/// A row that ends the process keeps no other from being run.
template <class Case>
std::vector<Case> crashing_last(std::vector<Case> all) {
  std::ranges::stable_partition(all, [](const Case& one) { return !one.crashes; });
  for (Case& one : all) {
    if (one.crashes) one.name = "Crashing" + one.name;
  }
  return all;
}

struct Arguments {
  at::Device device = at::kCPU;
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{11});
};

Arguments& arguments() {
  static Arguments those;
  return those;
}

}  // namespace

at::Tensor fresh(at::IntArrayRef sizes) {
  return torch::randn(sizes, arguments().random, torch::kFloat).to(arguments().device);
}
void begin_arguments(at::Device device) {
  arguments() = {};
  arguments().device = device;
}

std::string to_string(Category category) {
  switch (category) {
    case Category::kFirstReplay:
      return "first replay";
    case Category::kKnownToLevin:
      return "known to levin";
    case Category::kHostStateLater:
      return "host state later";
    case Category::kHostReads:
      return "host reads";
    case Category::kCrashes:
      return "crashes";
    case Category::kOrdinary:
      return "ordinary";
  }
  return "";
}

void PrintTo(const StepCase& of, std::ostream* out) { *out << of.name; }
void PrintTo(const FunctionCase& of, std::ostream* out) { *out << of.name; }

StepCase replayed(StepCase row) {
  row.wanted = Wanted::kReplayed;
  row.epochs = 6;
  return row;
}

DatasetPtr default_data() {
  const auto random = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
  const auto x = torch::randn({48, 6}, random);
  return data::tensors({{"x", x},
                        {"y", x.sum(1).gt(0).to(torch::kLong) + x.select(1, 0).gt(1)},
                        {"t", x.mean(1, true)},
                        {"tokens", torch::randint(12, {48, 6}, random, torch::kLong)},
                        {"image", torch::randn({48, 2, 6, 6}, random)}});
}

at::Tensor cross_entropy(const at::Tensor& logits, const Batch& batch) {
  return torch::nn::functional::cross_entropy(logits, batch["y"]);
}

at::Tensor plain_loss(Own& own, const Batch& batch) {
  return cross_entropy(own.net->forward(batch["x"]), batch);
}

std::vector<StepCase> step_cases() {
  std::vector<StepCase> all;
  take(all, steps_with_host_writes(), Category::kFirstReplay);
  take(all, steps_with_made(), Category::kFirstReplay);
  take(all, steps_that_keep(), Category::kFirstReplay);
  take(all, steps_as_advised(), Category::kFirstReplay);
  take(all, steps_with_random(), Category::kFirstReplay);
  take(all, steps_with_numbers(), Category::kKnownToLevin);
  take(all, steps_with_modules(), Category::kKnownToLevin);
  take(all, steps_with_host_state(), Category::kHostStateLater);
  take(all, steps_with_reads(), Category::kHostReads);
  take(all, steps_that_crash(), Category::kCrashes);
  take(all, ordinary_steps(), Category::kOrdinary);
  take(all, manual_steps(), Category::kOrdinary);
  take(all, checkpointed_steps(), Category::kOrdinary);
  mark_refused(all);
  return crashing_last(std::move(all));
}

std::vector<FunctionCase> function_cases() {
  std::vector<FunctionCase> all;
  take(all, functions_with_memory(), Category::kFirstReplay);
  take(all, functions_with_inputs(), Category::kKnownToLevin);
  take(all, functions_with_host_state(), Category::kHostStateLater);
  take(all, functions_with_reads(), Category::kHostReads);
  take(all, functions_that_crash(), Category::kCrashes);
  take(all, ordinary_functions(), Category::kOrdinary);
  mark_refused(all);
  return crashing_last(std::move(all));
}

}  // namespace levin::test
