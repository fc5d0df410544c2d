// Functions that depend on the host's state, or read on the host; and those that have crashed.
#include <random>

#include "levin/accelerator/engine/engine.h"
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_function_host {

namespace nn = torch::nn;
using at::Tensor;

std::tuple<Tensor> drawn(int64_t) { return {fresh({4, 6})}; }

/// The function gets a count of its calls, which it may change.
template <class Function>
FunctionCase counting(const std::string& name, const Function& function,
                      Wanted wanted = Wanted::kFoundLater) {
  return {.name = name,
          .make =
              [function](Accelerator& accelerator) {
                const auto calls = std::make_shared<int64_t>(0);
                return subject(
                    accelerator, [=](const Tensor& x) { return function(x, (*calls)++); }, drawn);
              },
          .wanted = wanted,
          .calls = 24};
}

/// A number of the caller's, set from the seventh call on.
template <class Function>
FunctionCase set_later(const std::string& name, const Function& function) {
  return {.name = name,
          .make =
              [function](Accelerator& accelerator) {
                const auto factor = std::make_shared<double>(1);
                auto compiled = std::make_shared<Subject>(subject(
                    accelerator, [=](const Tensor& x) { return function(x, *factor); }, drawn));
                return Subject{.call =
                                   [=](int64_t i) {
                                     *factor = i < 7 ? 1 : 3;
                                     return compiled->call(i);
                                   },
                               .report = compiled->report};
              },
          .wanted = Wanted::kFoundLater,
          .calls = 24};
}

template <class Function>
FunctionCase reading(const std::string& name, const Function& function,
                     Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .make = [function](
                      Accelerator& accelerator) { return subject(accelerator, function, drawn); },
          .wanted = wanted};
}

int64_t calls_of_static = 0;

}  // namespace rows_of_function_host

std::vector<FunctionCase> functions_with_host_state() {
  using namespace rows_of_function_host;  // NOLINT
  return {
      counting("FlipsAfterSixCalls",
               [](const Tensor& x, int64_t calls) { return calls < 6 ? x * 2 : x * 3; }),
      counting("EveryFifthCall",
               [](const Tensor& x, int64_t calls) { return calls % 5 == 4 ? x * 2 : x * 3; }),
      counting("WarmsUp",
               [](const Tensor& x, int64_t calls) {
                 return x * std::min(1.0, 0.2 * static_cast<double>(calls));
               }),
      counting("ACoinThatIsRare",
               [](const Tensor& x, int64_t calls) {
                 std::mt19937 random(static_cast<uint32_t>(calls));
                 return random() % 3 == 0 ? x * 2 : x * 3;
               }),
      set_later("AFactorIsSetLater", [](const Tensor& x, double factor) { return x * factor; }),
      set_later("AFlagIsSetLater",
                [](const Tensor& x, double factor) { return factor > 2 ? x.relu() : x; }),
      set_later("AHooksFactorIsSetLater",
                [](const Tensor& x, double factor) {
                  const Tensor leaf = x.clone().requires_grad_();
                  const Tensor y = leaf * 2;
                  y.register_hook([=](const Tensor& gradient) { return gradient * factor; });
                  return torch::autograd::grad({y.square().sum()}, {leaf})[0];
                }),
      {.name = "AStaticVariableCounts",
       .make =
           [](Accelerator& accelerator) {
             calls_of_static = 0;
             return subject(
                 accelerator, [](const Tensor& x) { return calls_of_static++ < 6 ? x * 2 : x * 3; },
                 drawn);
           },
       .wanted = Wanted::kFoundLater,
       .calls = 24},
      {.name = "TensorsAreSwapped",
       .make =
           [](Accelerator& accelerator) {
             const auto factors =
                 std::make_shared<Tensors>(Tensors{torch::full({6}, 2.0), torch::full({6}, 3.0)});
             auto compiled = std::make_shared<Subject>(
                 subject(accelerator, [=](const Tensor& x) { return x * (*factors)[0]; }, drawn));
             return Subject{.call =
                                [=](int64_t i) {
                                  if (i == 7) std::swap((*factors)[0], (*factors)[1]);
                                  return compiled->call(i);
                                },
                            .report = compiled->report};
           },
       .wanted = Wanted::kFoundLater,
       .calls = 24},
  };
}

std::vector<FunctionCase> functions_with_reads() {
  using namespace rows_of_function_host;  // NOLINT
  return {
      reading("Item", [](const Tensor& x) { return x * x.mean().item<double>(); }),
      reading("ItemBranch",
              [](const Tensor& x) { return x.mean().item<double>() > 0 ? x * 2 : x * 3; }),
      reading("PointerBranch",
              [](const Tensor& x) { return x.const_data_ptr<float>()[0] > 0 ? x * 2 : x * 3; }),
      reading(
          "PointerOfAResultBranch",
          [](const Tensor& x) { return *x.mean().const_data_ptr<float>() > 0 ? x * 2 : x * 3; },
          Wanted::kFoundLater),  // nobody sees a read by pointer
      reading("AccessorBranch",
              [](const Tensor& x) { return x.accessor<float, 2>()[1][1] > 0 ? x * 2 : x * 3; }),
      reading("Equal", [](const Tensor& x) { return torch::equal(x, x.abs()) ? x * 2 : x * 3; }),
      reading("Nonzero", [](const Tensor& x) { return x.gt(0).nonzero(); }),
      reading("MaskedSelect", [](const Tensor& x) { return x.masked_select(x > 0); }),
      reading("Unique", [](const Tensor& x) { return std::get<0>(at::_unique2(x.round())); }),
      reading("TensorOfItsNumbers",
              [](const Tensor& x) { return torch::tensor({x[0][0].item<float>(), 2.0F}); }),
      reading(
          "TensorOfTheHost",
          [](const Tensor& x) { return x * torch::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}); }),
      counting(
          "TensorOfTheHostInEachCall",
          [](const Tensor& x, int64_t calls) {
            std::vector<float> mask(6, 1.0F);
            mask[static_cast<size_t>(calls) % 6] = 0;
            return x * torch::tensor(mask);
          },
          Wanted::kEqual),
      counting(
          "BlobOfTheHostInEachCall",
          [](const Tensor& x, int64_t calls) {
            std::array<float, 6> mask = {1, 1, 1, 1, 1, 1};
            mask[static_cast<size_t>(calls) % 6] = 0;
            return x * torch::from_blob(mask.data(), {6});
          },
          Wanted::kEqual),
      counting(
          "AccessorInEachCall",
          [](const Tensor& x, int64_t calls) {
            const Tensor mask = torch::ones({6});
            mask.accessor<float, 1>()[calls % 6] = 0;
            return x * mask;
          },
          Wanted::kEqual),
      {.name = "CrossAttention",
       .make =
           [](Accelerator& accelerator) {
             const nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(6, 2));
             engine_of(accelerator).prepare_module(attention.ptr());
             return subject(
                 accelerator,
                 [attention = attention](const Tensor& x, const Tensor& memory) mutable {
                   return std::get<0>(attention->forward(x, memory, memory)).detach();
                 },
                 [](int64_t) { return std::tuple(fresh({4, 2, 6}), fresh({5, 2, 6})); });
           },
       .wanted = Wanted::kReplayed},
      {.name = "EncoderDecoder",
       .make =
           [](Accelerator& accelerator) {
             const nn::Transformer transformer(
                 nn::TransformerOptions(6, 2, 1, 1).dim_feedforward(8).dropout(0.1));
             engine_of(accelerator).prepare_module(transformer.ptr());
             return subject(
                 accelerator,
                 [transformer = transformer](const Tensor& x, const Tensor& y) mutable {
                   return transformer->forward(x, y).detach();
                 },
                 [](int64_t) { return std::tuple(fresh({4, 2, 6}), fresh({5, 2, 6})); });
           },
       .wanted = Wanted::kReplayed},
      {.name = "CtcLoss",
       .make =
           [](Accelerator& accelerator) {
             return subject(
                 accelerator,
                 [](const Tensor& x, const Tensor& labels) {
                   return nn::functional::ctc_loss(x.log_softmax(2), labels,
                                                   torch::full({2}, 8, torch::kLong),
                                                   torch::full({2}, 3, torch::kLong));
                 },
                 [](int64_t) {
                   return std::tuple(fresh({8, 2, 5}),
                                     fresh({2, 3}).abs().clamp(0, 3).to(torch::kLong) + 1);
                 });
           }},
  };
}

std::vector<FunctionCase> functions_that_crash() {
  using namespace rows_of_function_host;  // NOLINT
  const auto in_float = caffe2::TypeMeta::Make<float>(),
             in_double = caffe2::TypeMeta::Make<double>();
  return {
      {.name = "ACompiledFunctionWithinAnother",
       .make =
           [](Accelerator& accelerator) {
             auto inner = accelerator.compile([](const Tensor& x) { return x * 2; });
             return subject(
                 accelerator, [inner](const Tensor& x) mutable { return inner(x) + 1; }, drawn);
           },
       .crashes = true},
      {.name = "TwoCompiledFunctionsWithinAnother",
       .make =
           [](Accelerator& accelerator) {
             auto one = accelerator.compile([](const Tensor& x) { return x.relu(); });
             auto two = accelerator.compile([](const Tensor& x) { return x.tanh(); });
             return subject(
                 accelerator,
                 [one, two](const Tensor& x) mutable { return two(one(x) * 3) + one(x); }, drawn);
           },
       .crashes = true},
      {.name = "ACompiledFunctionThatWasReplayedBefore",
       .make =
           [](Accelerator& accelerator) {
             auto inner = accelerator.compile([](const Tensor& x) { return x * 2; });
             for (int64_t i = 0; i < 6; ++i) inner(fresh({4, 6}));
             return subject(
                 accelerator, [inner](const Tensor& x) mutable { return inner(x.relu()) + 1; },
                 drawn);
           }},
      {.name = "ACompiledTrainingStepWithinAnother",
       .make =
           [](Accelerator& accelerator) {
             const nn::Linear layer(6, 3);
             engine_of(accelerator).prepare_module(layer.ptr());
             auto optimizer =
                 engine_of(accelerator).prepare_optimizers({optim::adam({.lr = 1e-2})})[0];
             auto inner = accelerator.compile([=, &accelerator](const Tensor& x) mutable {
               optimizer.zero_grad();
               const Tensor loss =
                   nn::functional::linear(x, layer->weight, layer->bias).square().mean();
               accelerator.backward(loss);
               optimizer.step();
               return loss.detach();
             });
             return subject(
                 accelerator, [inner](const Tensor& x) mutable { return inner(x) + inner(x * 2); },
                 drawn, [=] { return layer->parameters(); });
           },
       .crashes = true},
      {.name = "ACompiledFunctionThatCallsItself",
       .make =
           [](Accelerator& accelerator) {
             using Function = std::function<Tensor(const Tensor&, int64_t)>;
             const auto self = std::make_shared<std::unique_ptr<CompiledFunction<Function>>>();
             const Function function = [weak = std::weak_ptr(self)](const Tensor& x,
                                                                    int64_t depth) {
               if (depth == 0) return x * 2;
               return (**weak.lock())(x + 1, depth - 1) * 3;
             };
             *self = std::make_unique<CompiledFunction<Function>>(accelerator.compile(function));
             return Subject{.call = [self](int64_t) { return Tensors{(**self)(fresh({4, 6}), 2)}; },
                            .report = [self] { return (*self)->report(); }};
           },
       .crashes = true},
      {.name = "TheDefaultDtypeChanges",
       .make =
           [=](Accelerator& accelerator) {
             const nn::Linear layer(6, 3);
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator,
                 [=](const Tensor& x) {
                   return (nn::functional::linear(x, layer->weight, layer->bias) * torch::ones({}))
                       .detach();
                 },
                 [](int64_t) { return std::tuple(fresh({4, 6})); }));
             return Subject{.call =
                                [=](int64_t i) {
                                  torch::set_default_dtype(i < 8 ? in_float : in_double);
                                  return compiled->call(i);
                                },
                            .report = compiled->report};
           }},
      {.name = "DataIsSet",
       .make =
           [](Accelerator& accelerator) {
             const nn::Linear layer(6, 3);
             engine_of(accelerator).prepare_module(layer.ptr());
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator,
                 [=](const Tensor& x) {
                   return nn::functional::linear(x, layer->weight, layer->bias).detach();
                 },
                 drawn));
             return Subject{.call =
                                [=](int64_t i) {
                                  if (i == 8) layer->weight.set_data(layer->weight.detach() * 2);
                                  return compiled->call(i);
                                },
                            .report = compiled->report};
           }},
      {.name = "ThrowsNowAndThen",
       .make =
           [](Accelerator& accelerator) {
             const auto fails = std::make_shared<bool>(false);
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator,
                 [=](const Tensor& x) {
                   const Tensor y = x * 2;
                   if (*fails) throw std::runtime_error("as asked");
                   return y + 1;
                 },
                 drawn));
             return Subject{.call = [=](int64_t i) -> Tensors {
                              *fails = i == 0 || i == 2;
                              try {
                                return compiled->call(i);
                              } catch (const std::runtime_error&) {
                                return {};
                              }
                            },
                            .report = compiled->report};
           }},
  };
}

}  // namespace levin::test
