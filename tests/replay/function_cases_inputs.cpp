// Arguments of functions: numbers to the bit, strides, flags and memory of tensors.
#include "levin/accelerator/engine/engine.h"
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_function_inputs {

using at::Tensor;

template <class Function, class ArgumentsOf>
FunctionCase row(const std::string& name, const Function& function, const ArgumentsOf& arguments_of,
                 Wanted wanted = Wanted::kEqual) {
  return {
      .name = name,
      .make =
          [=](Accelerator& accelerator) { return subject(accelerator, function, arguments_of); },
      .wanted = wanted};
}

Tensor drawn() { return fresh({4, 6}); }
bool is_later(int64_t call) { return call >= 8; }

std::vector<FunctionCase> numbers() {
  return {
      row(
          "IntegersBeyondADouble",
          [](const Tensor& x, int64_t number) { return x + static_cast<double>(number % 16); },
          [](int64_t i) {
            return std::tuple(drawn(), (int64_t{1} << 53) + (is_later(i) ? 1 : 0));
          }),
      row(
          "IntegersBeyondADoubleInTurns",
          [](const Tensor& x, int64_t number) { return torch::full_like(x, number, torch::kLong); },
          [](int64_t i) { return std::tuple(drawn(), (int64_t{1} << 53) + i % 2); }),
      row(
          "LargestIntegers",
          [](const Tensor& x, int64_t number) {
            return torch::full({2}, number, torch::kLong) + x.size(0);
          },
          [](int64_t i) {
            return std::tuple(drawn(),
                              std::numeric_limits<int64_t>::max() - 8 - (is_later(i) ? 1 : 0));
          }),
      row(
          "UnsignedIntegers",
          [](const Tensor& x, uint64_t number) { return x * static_cast<double>(number & 7); },
          [](int64_t i) {
            return std::tuple(drawn(), (uint64_t{1} << 63) + (is_later(i) ? 1U : 2U));
          }),
      row(
          "Zeros", [](const Tensor& x, double number) { return x / number; },
          [](int64_t i) { return std::tuple(drawn(), is_later(i) ? -0.0 : 0.0); }),
      row(
          "Nan", [](const Tensor& x, double number) { return x * number; },
          [](int64_t) { return std::tuple(drawn(), std::numeric_limits<double>::quiet_NaN()); }),
      row(
          "Bools", [](const Tensor& x, bool flag) { return flag ? x * 2 : x.relu(); },
          [](int64_t i) { return std::tuple(drawn(), i % 2 == 0); }, Wanted::kReplayed),
      row(
          "Floats", [](const Tensor& x, float factor) { return x * factor; },
          [](int64_t i) { return std::tuple(drawn(), is_later(i) ? 0.1F : 0.2F); },
          Wanted::kReplayed),
      [] {
        FunctionCase many = row(
            "ManyNumbers", [](const Tensor& x, double factor) { return x * factor; },
            [](int64_t i) { return std::tuple(drawn(), static_cast<double>(i)); });
        many.calls = 24;  // more than it may have recordings
        return many;
      }(),
  };
}

Tensor plain_product(const Tensor& x, const Tensor& y) { return x * y; }
Tensor written_product(const Tensor& x, const Tensor& y) {
  x.add_(1);
  return x * y;
}

/// Two arguments that are one tensor in some calls.
FunctionCase twice(const std::string& name, Tensor (*function)(const Tensor&, const Tensor&),
                   bool (*is_one)(int64_t call)) {
  return row(
      name, [function](const Tensor& x, const Tensor& y) { return function(x, y); },
      [is_one](int64_t i) {
        const Tensor x = drawn();
        return std::tuple(x, is_one(i) ? x : x.clone());
      });
}

std::vector<FunctionCase> tensors() {
  return {
      twice("OneTensorTwice", plain_product, [](int64_t) { return true; }),
      twice("OneTensorTwiceLater", plain_product, is_later),
      twice("OneTensorTwiceThatIsWritten", written_product, is_later),
      twice("OneTensorTwiceAtFirst", written_product, [](int64_t i) { return !is_later(i); }),
      row(
          "ATensorAndItsView", [](const Tensor& x, const Tensor& y) { return x.sum() + y.mean(); },
          [](int64_t) {
            const Tensor x = drawn();
            return std::tuple(x, x.view({-1}));
          }),
      row(
          "ATensorAndItsTransposed", [](const Tensor& x, const Tensor& y) { return x.matmul(y); },
          [](int64_t) {
            const Tensor x = drawn();
            return std::tuple(x, x.t());
          }),
      row(
          "TensorsThatOverlap",
          [](const Tensor& x, const Tensor& y) {
            x.mul_(2);
            return x + y;
          },
          [](int64_t) {
            const Tensor x = fresh({8});
            return std::tuple(x.slice(0, 0, 6), x.slice(0, 2, 8));
          }),
      row(
          "TensorsThatOverlapLater",
          [](const Tensor& x, const Tensor& y) {
            x.mul_(2);
            return x + y;
          },
          [](int64_t i) {
            const Tensor x = fresh({8});
            const Tensor end = x.slice(0, 2, 8);
            return std::tuple(x.slice(0, 0, 6), is_later(i) ? end : end.clone());
          }),
      row(
          "PartsThatDoNotOverlap",
          [](const Tensor& x, const Tensor& y) {
            x.mul_(2);
            return x + y;
          },
          [](int64_t) {
            const Tensor x = fresh({12});
            return std::tuple(x.slice(0, 0, 6), x.slice(0, 6, 12));
          }),
      row(
          "OtherStrides", [](const Tensor& x) { return x.is_contiguous() ? x * 2 : x * 3; },
          [](int64_t i) { return std::tuple(is_later(i) ? fresh({6, 4}).t() : drawn()); }),
      row(
          "AResultAsItsStrides", [](const Tensor& x) { return x.as_strided({5}, {2}); },
          [](int64_t i) { return std::tuple(is_later(i) ? fresh({6, 4}).t() : drawn()); }),
      row(
          "ChannelsLast",
          [](const Tensor& x) {
            return x.is_contiguous(at::MemoryFormat::ChannelsLast) ? x * 2 : x * 3;
          },
          [](int64_t i) {
            const Tensor x = fresh({2, 3, 4, 5});
            return std::tuple(is_later(i) ? x.contiguous(at::MemoryFormat::ChannelsLast) : x);
          }),
      row(
          "Expanded", [](const Tensor& x) { return x * 2; },
          [](int64_t i) {
            return std::tuple(is_later(i) ? fresh({1, 6}).expand({4, 6}) : drawn());
          }),
      row(
          "AnOffset", [](const Tensor& x) { return x.as_strided({3}, {2}) * 2; },
          [](int64_t i) {
            const Tensor x = fresh({30});
            return std::tuple(x.slice(0, is_later(i) ? 6 : 0, is_later(i) ? 12 : 6));
          }),
      row(
          "NeedsGradients",
          [](const Tensor& x) { return x.requires_grad() ? x.detach() * 2 : x * 3; },
          [](int64_t i) { return std::tuple(drawn().requires_grad_(is_later(i))); }),
      row(
          "GradientOfItsInput",
          [](const Tensor& x) { return torch::autograd::grad({x.square().sum()}, {x})[0]; },
          [](int64_t) { return std::tuple(drawn().requires_grad_()); }),
      row(
          "AccumulatesAGradientOfItsInput",
          [](const Tensor& x) {
            x.square().sum().backward();
            return x.grad() * 2;
          },
          [](int64_t) { return std::tuple(drawn().requires_grad_()); }),
      {.name = "LeavesAGradientWithItsInput",
       .make =
           [](Accelerator& accelerator) {
             const auto input = std::make_shared<Tensor>();
             return subject(
                 accelerator,
                 [](const Tensor& x) {
                   const Tensor loss = x.square().sum();
                   loss.backward();
                   return loss.detach();
                 },
                 [=](int64_t) { return std::tuple(*input = drawn().requires_grad_()); },
                 [=] { return Tensors{input->grad()}; });
           }},
      row(
          "Conjugated", [](const Tensor& z) { return torch::imag(z * 2).clone(); },
          [](int64_t i) {
            const Tensor z = torch::complex(drawn(), drawn());
            return std::tuple(is_later(i) ? z.conj() : z);
          }),
      row(
          "ConjugatedInTurns", [](const Tensor& z) { return z.is_conj() ? z * 2 : z * 3; },
          [](int64_t i) {
            const Tensor z = torch::complex(drawn(), drawn());
            return std::tuple(i % 2 == 0 ? z.conj() : z);
          }),
      row(
          "Negated", [](const Tensor& x) { return x * 2; },
          [](int64_t i) {
            const Tensor z = torch::complex(drawn(), drawn());
            return std::tuple(torch::imag(is_later(i) ? z.conj() : z));
          }),
      row(
          "NegatedFromTheStart", [](const Tensor& x) { return x * 2; },
          [](int64_t) { return std::tuple(torch::imag(torch::complex(drawn(), drawn()).conj())); }),
      row(
          "ZeroDim", [](const Tensor& x) { return x * 2; },
          [](int64_t i) { return std::tuple(is_later(i) ? fresh({1}) : fresh({})); },
          Wanted::kReplayed),
      row(
          "Empty", [](const Tensor& x) { return x * 2; },
          [](int64_t) { return std::tuple(fresh({0, 6})); }, Wanted::kReplayed),
      row(
          "WrappedNumbers", [](const Tensor& x, const Tensor& y) { return x + y; },
          [](int64_t i) {
            const Tensor number = torch::tensor(2.5, torch::kDouble);
            const Tensor other = number.clone();
            other.unsafeGetTensorImpl()->set_wrapped_number(true);
            return std::tuple(drawn(), is_later(i) ? other : number);
          }),
      {.name = "AParameterAsItsInput",
       .make =
           [](Accelerator& accelerator) {
             const torch::nn::Linear layer(6, 6);
             engine_of(accelerator).prepare_module(layer.ptr());
             return subject(
                 accelerator,
                 [=](const Tensor& x) {
                   return torch::nn::functional::linear(x.detach(), layer->weight.detach());
                 },
                 [=](int64_t i) {
                   return std::tuple(is_later(i) ? layer->weight.detach() : fresh({6, 6}));
                 });
           }},
      {.name = "AParameterAsItsInputThatIsWritten",
       .make =
           [](Accelerator& accelerator) {
             const torch::nn::Linear layer(6, 6);
             engine_of(accelerator).prepare_module(layer.ptr());
             return subject(
                 accelerator,
                 [=](const Tensor& x) {
                   const at::NoGradGuard no_grad;
                   layer->weight.mul_(0.9);
                   return x + layer->weight;
                 },
                 [=](int64_t i) {
                   return std::tuple(i >= 6 ? layer->weight.detach() : fresh({6, 6}));
                 });
           }},
      {.name = "FieldsOfBatchesInAnotherOrder",
       .make =
           [](Accelerator& accelerator) {
             return subject(
                 accelerator, [](const Batch& batch) { return batch["a"] - batch["b"]; },
                 [](int64_t i) {
                   const Tensor a = drawn(), b = drawn();
                   return std::tuple(is_later(i) ? Batch{{"b", b}, {"a", a}}
                                                 : Batch{{"a", a}, {"b", b}});
                 });
           }},
      {.name = "GradientModeChanges",
       .make =
           [](Accelerator& accelerator) {
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator,
                 [](const Tensor& x) { return at::GradMode::is_enabled() ? x * 2 : x * 3; },
                 [](int64_t) { return std::tuple(drawn()); }));
             return Subject{.call =
                                [=](int64_t i) {
                                  const at::AutoGradMode mode(!is_later(i));
                                  return compiled->call(i);
                                },
                            .report = compiled->report};
           }},
  };
}

}  // namespace rows_of_function_inputs

std::vector<FunctionCase> functions_with_inputs() {
  using namespace rows_of_function_inputs;  // NOLINT
  std::vector<FunctionCase> all = numbers(), more = tensors();
  for (FunctionCase& one : more) all.push_back(std::move(one));
  return all;
}

}  // namespace levin::test
