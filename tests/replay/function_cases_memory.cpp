// Functions whose tensors the host writes, that keep or share them, and their generators.
#include <ATen/CPUGeneratorImpl.h>

#include <cstring>

#include "levin/accelerator/engine/engine.h"
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_function_memory {

using at::Tensor;

/// Of one tensor [4, 6], drawn anew for each call.
std::tuple<Tensor> drawn(int64_t) { return {fresh({4, 6})}; }

template <class Function>
FunctionCase of_one(const std::string& name, const Function& function,
                    Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .make = [function](
                      Accelerator& accelerator) { return subject(accelerator, function, drawn); },
          .wanted = wanted};
}

/// A linear layer, prepared; the function gets it.
template <class Function>
FunctionCase of_layer(const std::string& name, const Function& function,
                      Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .make =
              [function](Accelerator& accelerator) {
                const torch::nn::Linear layer(6, 6);
                engine_of(accelerator).prepare_module(layer.ptr());
                return subject(
                    accelerator, [=](const Tensor& x) { return function(*layer, x); }, drawn,
                    [=] { return layer->parameters(); });
              },
          .wanted = wanted};
}

std::vector<FunctionCase> written() {
  return {
      of_one("MaskByAccessor",
             [](const Tensor& x) {
               const Tensor mask = torch::zeros({6});
               auto numbers = mask.accessor<float, 1>();
               for (int64_t i = 0; i < 6; i += 2) numbers[i] = 2;
               return x * mask;
             }),
      of_one("ResultWrittenByAccessor",
             [](const Tensor& x) {
               const Tensor y = x * 2;
               auto numbers = y.accessor<float, 2>();
               for (int64_t i = 0; i < y.size(0); ++i) numbers[i][0] = 7;
               return y;
             }),
      of_one("ResultByPointerAlone",
             [](const Tensor& x) {
               Tensor y = torch::empty_like(x);
               for (int64_t i = 0; i < x.numel(); ++i) {
                 y.mutable_data_ptr<float>()[i] = 1 + x.const_data_ptr<float>()[i];
               }
               return y;
             }),
      of_one("ResultByMemcpyOfItsInput",
             [](const Tensor& x) {
               Tensor y = torch::empty_like(x);
               std::memcpy(y.mutable_data_ptr<float>(), x.const_data_ptr<float>(), x.nbytes());
               return y * 2;
             }),
      of_one("InputWrittenByPointer",
             [](const Tensor& x) {
               x.mutable_data_ptr<float>()[0] = 100;
               return x.sum();
             }),
      of_one("WrittenBetweenTwoOperators",
             [](const Tensor& x) {
               const Tensor y = x.relu();
               y.mutable_data_ptr<float>()[3] = -1;
               return y.exp();
             }),
      of_one("WrittenWithAConstantOnTheInputsBasis",
             [](const Tensor& x) {
               const Tensor flags = torch::zeros({x.size(0)}, torch::kBool);
               std::memset(flags.mutable_data_ptr(), 1, 2);
               return x.masked_fill(flags.unsqueeze(1), 0.0);
             }),
  };
}

std::vector<FunctionCase> shared() {
  return {
      of_one("ResultIsItsInput", [](const Tensor& x) { return x; }),
      of_one("ResultIsAViewOfItsInput", [](const Tensor& x) { return x.select(1, 2); }),
      of_one("ResultIsItsInputTransposed", [](const Tensor& x) { return x.t(); }),
      of_one("ResultIsItsInputWritten",
             [](const Tensor& x) {
               x.add_(1);
               return x;
             }),
      of_one("TwoResultsThatAreOne",
             [](const Tensor& x) {
               const Tensor y = x * 2;
               return std::tuple(y, y);
             }),
      of_one("TwoResultsThatShare",
             [](const Tensor& x) {
               const Tensor y = x * 2;
               return std::tuple(y, y.view({-1}), y.select(0, 1));
             }),
      of_one("ThreePartsOfOne",
             [](const Tensor& x) {
               const auto parts = (x * 2).chunk(3, 1);
               return std::tuple(parts[0], parts[1], parts[2]);
             }),
      of_one("ResultIsExpanded", [](const Tensor& x) { return x.sum(1, true).expand({4, 5}); }),
      of_layer("ResultIsAWeight",
               [](const torch::nn::LinearImpl& layer, const Tensor& x) {
                 const at::NoGradGuard no_grad;
                 layer.weight.add_(x.mean());
                 return layer.weight;
               }),
      of_layer("ResultIsAViewOfAWeight",
               [](const torch::nn::LinearImpl& layer, const Tensor& x) {
                 const at::NoGradGuard no_grad;
                 layer.weight.add_(x.mean());
                 return layer.weight.detach()[0];
               }),
      of_layer(
          "ResultIsAWeightBeforeItIsWritten",
          [](const torch::nn::LinearImpl& layer, const Tensor& x) {
            const at::NoGradGuard no_grad;
            const Tensor before = layer.weight.clone();
            layer.weight.mul_(0.9).add_(x.mean());
            return std::tuple(before, x * 2);
          },
          Wanted::kReplayed),
      {.name = "ResultIsWrittenByTheCaller",
       .make =
           [](Accelerator& accelerator) {
             auto compiled = std::make_shared<Subject>(
                 subject(accelerator, [](const Tensor& x) { return x * 2; }, drawn));
             return Subject{.call =
                                [compiled](int64_t i) {
                                  const Tensors results = compiled->call(i);
                                  const Tensor before = results[0].clone();
                                  results[0].zero_();
                                  return Tensors{before, results[0]};
                                },
                            .report = compiled->report};
           }},
      {.name = "TheInputIsWrittenByTheCallerAfterwards",
       .make =
           [](Accelerator& accelerator) {
             const auto input = std::make_shared<Tensor>();
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator, [](const Tensor& x) { return std::tuple(x * 2, x.view({-1})); },
                 [input](int64_t) { return std::tuple(*input = fresh({4, 6})); }));
             return Subject{.call =
                                [compiled, input](int64_t i) {
                                  const Tensors results = compiled->call(i);
                                  input->fill_(3);
                                  return results;
                                },
                            .report = compiled->report};
           }},
  };
}

/// Kept in a tensor of the caller's.
template <class Keep>
FunctionCase keeping(const std::string& name, const Keep& keep) {
  return {.name = name, .make = [keep](Accelerator& accelerator) {
            const auto kept = std::make_shared<Tensors>();
            return subject(
                accelerator,
                [=](const Tensor& x) {
                  keep(*kept, x);
                  return x.sum();
                },
                drawn, [=] { return *kept; });
          }};
}

std::vector<FunctionCase> kept() {
  return {
      keeping("KeepsASlot", [](Tensors& kept, const Tensor& x) { kept = {x * 2}; }),
      keeping("KeepsASlotByCopy",
              [](Tensors& kept, const Tensor& x) {
                if (kept.empty()) kept = {torch::zeros({4, 6})};
                kept[0].copy_(x * 2);
              }),
      keeping("KeepsAListThatGrows",
              [](Tensors& kept, const Tensor& x) { kept.push_back((x * 2).sum()); }),
      keeping("KeepsASum",
              [](Tensors& kept, const Tensor& x) {
                kept = {kept.empty() ? x.mean() : kept[0] + x.mean()};
              }),
      keeping("KeepsItsInput", [](Tensors& kept, const Tensor& x) { kept = {x}; }),
      keeping("KeepsAViewOfItsInput", [](Tensors& kept, const Tensor& x) { kept = {x[1]}; }),
  };
}

std::vector<FunctionCase> generators() {
  const auto seeded = [](uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); };
  return {
      of_one("SeedsTheDefaultGenerator",
             [](const Tensor& x) {
               torch::manual_seed(5);
               return x * torch::rand_like(x);
             }),
      of_one("ANewGenerator",
             [=](const Tensor& x) { return x * torch::rand(x.sizes(), seeded(4)); }),
      {.name = "AnOwnGenerator",
       .make =
           [=](Accelerator& accelerator) {
             return subject(
                 accelerator,
                 [generator = seeded(4)](const Tensor& x) {
                   return x * torch::rand(x.sizes(), generator);
                 },
                 drawn);
           }},
      {.name = "AnOwnGeneratorThatIsSeeded",
       .make =
           [=](Accelerator& accelerator) {
             return subject(
                 accelerator,
                 [generator = seeded(4)](const Tensor& x) mutable {
                   generator.set_current_seed(6);
                   return x * torch::rand(x.sizes(), generator);
                 },
                 drawn);
           }},
      of_one(
          "Dropout", [](const Tensor& x) { return torch::dropout(x, 0.5, true); },
          Wanted::kReplayed),
  };
}

}  // namespace rows_of_function_memory

std::vector<FunctionCase> functions_with_memory() {
  using namespace rows_of_function_memory;  // NOLINT
  std::vector<FunctionCase> all = written();
  for (const auto& more : {shared(), kept(), generators()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace levin::test
