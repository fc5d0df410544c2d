// Random numbers of a step: of which generator, and who seeds it.
#include <ATen/CPUGeneratorImpl.h>

#include <random>

#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_random {

using at::Tensor;

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

/// The net sees x * factors.
StepCase scaled(const std::string& name,
                const std::function<Tensor(Own&, const Tensor& x, int64_t index)>& factors,
                Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step =
              [factors](Own& own, const Batch& batch, int64_t index) {
                const Tensor& x = batch["x"];
                return cross_entropy(own.net->forward(x * factors(own, x, index)), batch);
              },
          .wanted = wanted,
          .build =
              [](Own& own) {
                own.net = own.register_module(
                    "net", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::Dropout(0.2),
                                                 torch::nn::Linear(8, 3)));
                own.generator = seeded(21);
              }};
}

std::vector<StepCase> by_generators() {
  return {
      scaled("SeedsTheDefaultGenerator",
             [](Own&, const Tensor& x, int64_t) {
               torch::manual_seed(5);
               return torch::rand_like(x);
             }),
      scaled("SeedsTheDefaultGeneratorByItsBatch",
             [](Own&, const Tensor& x, int64_t index) {
               torch::manual_seed(static_cast<uint64_t>(index));
               return torch::rand_like(x);
             }),
      scaled("SeedsTheDefaultGeneratorAfterADraw",
             [](Own&, const Tensor& x, int64_t) {
               const Tensor first = torch::rand_like(x);
               torch::manual_seed(6);
               return first;
             }),
      scaled("SeedsTheDefaultGeneratorByTheStep",
             [](Own& own, const Tensor& x, int64_t) {
               torch::manual_seed(static_cast<uint64_t>(own.global_step()));
               return torch::rand_like(x);
             }),
      scaled(
          "DrawsFromAnOwnGenerator",
          [](Own& own, const Tensor& x, int64_t) { return torch::rand(x.sizes(), own.generator); }),
      scaled("SeedsAnOwnGenerator",
             [](Own& own, const Tensor& x, int64_t) {
               own.generator.set_current_seed(8);
               return torch::rand(x.sizes(), own.generator);
             }),
      scaled("SeedsAnOwnGeneratorBetweenTwoDraws",
             [](Own& own, const Tensor& x, int64_t) {
               const Tensor first = torch::rand(x.sizes(), own.generator);
               own.generator.set_current_seed(8);
               return first + torch::rand(x.sizes(), own.generator);
             }),
      scaled("SeedsAnOwnGeneratorByACount",
             [](Own& own, const Tensor& x, int64_t) {
               own.generator.set_current_seed(static_cast<uint64_t>(own.counts["calls"]++));
               return torch::rand(x.sizes(), own.generator);
             }),
      scaled("MakesANewGenerator",
             [](Own&, const Tensor& x, int64_t) { return torch::rand(x.sizes(), seeded(4)); }),
      scaled("MakesANewGeneratorByItsBatch",
             [](Own&, const Tensor& x, int64_t index) {
               return torch::rand(x.sizes(), seeded(static_cast<uint64_t>(index)));
             }),
      scaled("MakesANewGeneratorByTheStep",
             [](Own& own, const Tensor& x, int64_t) {
               return torch::rand(x.sizes(), seeded(static_cast<uint64_t>(own.global_step())));
             }),
      scaled("MakesANewGeneratorAndKeepsIt",
             [](Own& own, const Tensor& x, int64_t) {
               own.generator = seeded(4);
               return torch::rand(x.sizes(), own.generator);
             }),
      scaled("ClonesAGenerator",
             [](Own& own, const Tensor& x, int64_t) {
               return torch::rand(x.sizes(), own.generator.clone());
             }),
      scaled("PutsAGeneratorsStateBack",
             [](Own& own, const Tensor& x, int64_t) {
               const Tensor state = own.generator.get_state();
               const Tensor first = torch::rand(x.sizes(), own.generator);
               own.generator.set_state(state);
               return first + torch::rand(x.sizes(), own.generator);
             }),
      scaled("PutsTheDefaultGeneratorsStateBack",
             [](Own&, const Tensor& x, int64_t) {
               at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
               const Tensor state = generator.get_state();
               const Tensor first = torch::rand_like(x);
               generator.set_state(state);
               return first + torch::rand_like(x);
             }),
      scaled(
          "TakesTheOtherGeneratorInTurn",
          [](Own& own, const Tensor& x, int64_t) {
            const bool second = own.counts["calls"]++ % 2 == 1;
            const at::Generator fresh = at::globalContext().defaultGenerator(at::kCPU);
            return torch::rand(x.sizes(), second ? own.generator : fresh);
          },
          Wanted::kFoundLater),  // by a counter of the host's
      scaled("TheHostDrawsFromTheDefaultGenerator",
             [](Own&, const Tensor& x, int64_t) {
               auto* generator = at::get_generator_or_default<at::CPUGeneratorImpl>(
                   std::nullopt, at::detail::getDefaultCPUGenerator());
               return torch::rand_like(x) * (1.0 + static_cast<double>(generator->random() % 7));
             }),
      scaled("TheHostDrawsAndDropsTheNumber",
             [](Own&, const Tensor& x, int64_t) {
               auto* generator = at::get_generator_or_default<at::CPUGeneratorImpl>(
                   std::nullopt, at::detail::getDefaultCPUGenerator());
               generator->random();
               return torch::rand_like(x);
             }),
      scaled("TheHostDrawsFromStd",
             [](Own& own, const Tensor& x, int64_t) {
               std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
               return torch::full_like(x, std::uniform_real_distribution<float>(0.5, 1.5)(random));
             }),
      scaled("TheHostsNumbersOfStdAsATensor",
             [](Own& own, const Tensor&, int64_t) {
               std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
               std::vector<float> numbers(6);
               for (float& number : numbers)
                 number = std::uniform_real_distribution<float>()(random);
               return torch::tensor(numbers);
             }),
  };
}

std::vector<StepCase> by_operators() {
  const Wanted replayed = Wanted::kReplayed;
  return {
      scaled(
          "Rand", [](Own&, const Tensor& x, int64_t) { return torch::rand_like(x); }, replayed),
      scaled(
          "Noise", [](Own&, const Tensor& x, int64_t) { return 1 + 0.1 * torch::randn_like(x); },
          replayed),
      scaled(
          "Bernoulli",
          [](Own&, const Tensor& x, int64_t) { return torch::bernoulli(torch::full_like(x, 0.5)); },
          replayed),
      scaled(
          "UniformInPlace",
          [](Own&, const Tensor& x, int64_t) { return torch::empty_like(x).uniform_(0.5, 1.5); },
          replayed),
      scaled(
          "Exponential",
          [](Own&, const Tensor& x, int64_t) { return torch::empty_like(x).exponential_(2); },
          replayed),
      scaled(
          "Integers",
          [](Own&, const Tensor& x, int64_t) {
            return torch::randint(3, x.sizes()).to(torch::kFloat);
          },
          replayed),
      scaled(
          "Permutation",
          [](Own&, const Tensor& x, int64_t) {
            return x.index_select(0, torch::randperm(x.size(0)));
          },
          replayed),
      scaled(
          "Multinomial",
          [](Own&, const Tensor& x, int64_t) {
            return torch::multinomial(x.abs() + 0.1, 6).to(torch::kFloat);
          },
          replayed),
  };
}

}  // namespace rows_of_step_random

std::vector<StepCase> steps_with_random() {
  using namespace rows_of_step_random;  // NOLINT
  std::vector<StepCase> all = by_generators(), more = by_operators();
  for (StepCase& one : all) one.takes_index = true;
  for (StepCase& one : more) all.push_back(std::move(one));
  return all;
}

}  // namespace levin::test
