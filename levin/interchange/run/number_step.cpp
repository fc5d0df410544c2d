// Sizes and what Python computes of them: the symbolic integers of torch.export, numbers here.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "levin/base/check.h"
#include "levin/interchange/program/floor_div.h"
#include "levin/interchange/run/step.h"

namespace levin::interchange {
namespace {

using c10::IValue;
using Numbers = std::span<const IValue* const>;
using Function = IValue (*)(Numbers);

bool are_integers(Numbers numbers) {
  return std::ranges::all_of(
      numbers, [](const IValue* number) { return number->isInt() || number->isBool(); });
}
int64_t integer(const IValue& number) {
  return number.isBool() ? static_cast<int64_t>(number.toBool()) : number.toInt();
}
double real(const IValue& number) {
  return number.isDouble() ? number.toDouble() : static_cast<double>(integer(number));
}
bool truth(const IValue& number) {
  return number.isDouble() ? number.toDouble() != 0 : integer(number) != 0;
}

int64_t whole_quotient(int64_t a, int64_t b) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  LEVIN_CHECK(b != 0 && !(a == kLeast && b == -1), "interchange.input", "a size cannot be {} // {}",
              a, b);
  return floor_div(a, b);
}
int64_t difference(int64_t a, int64_t b) {
  int64_t result = 0;
  LEVIN_CHECK(!__builtin_sub_overflow(a, b, &result), "interchange.input",
              "a size exceeds 64 bits: {} - {}", a, b);
  return result;
}
/// Python's int(number), which has no limit.
int64_t whole(double number) {
  constexpr double kMost = 9.2e18;
  LEVIN_CHECK(std::abs(number) < kMost, "interchange.input", "a size cannot be {}", number);
  return static_cast<int64_t>(number);
}
double floor_mod(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Python's arithmetic: integers stay integers.
template <class Integers, class Reals>
IValue arithmetic(Numbers numbers, const Integers& integers, const Reals& reals) {
  if (are_integers(numbers)) return integers(integer(*numbers[0]), integer(*numbers[1]));
  return reals(real(*numbers[0]), real(*numbers[1]));
}

template <class Compare>
IValue compared(Numbers numbers, const Compare& compare) {
  return are_integers(numbers) ? compare(integer(*numbers[0]), integer(*numbers[1]))
                               : compare(real(*numbers[0]), real(*numbers[1]));
}

IValue power(Numbers numbers) {
  if (!are_integers(numbers) || integer(*numbers[1]) < 0) {
    return std::pow(real(*numbers[0]), real(*numbers[1]));
  }
  int64_t result = 1;
  for (int64_t i = integer(*numbers[1]); i > 0; --i) {
    LEVIN_CHECK(!__builtin_mul_overflow(result, integer(*numbers[0]), &result), "interchange.input",
                "a size exceeds 64 bits");
  }
  return result;
}

struct Known {
  size_t num_arguments;
  Function function;
};

#define LEVIN_ARITHMETIC(symbol, checked)                                 \
  [](Numbers n) {                                                         \
    return arithmetic(                                                    \
        n,                                                                \
        [](int64_t a, int64_t b) {                                        \
          int64_t result = 0;                                             \
          LEVIN_CHECK(!checked(a, b, &result), "interchange.input",       \
                      "a size exceeds 64 bits: {} " #symbol " {}", a, b); \
          return IValue(result);                                          \
        },                                                                \
        [](double a, double b) { return IValue(a symbol b); });           \
  }
#define LEVIN_COMPARISON(symbol) \
  [](Numbers n) { return compared(n, [](auto a, auto b) { return IValue(a symbol b); }); }

/// By the name of Python's function, as the archive writes it.
const std::map<std::string_view, Known>& functions() {
  static const std::map<std::string_view, Known> known = {
      {"_operator.add", {2, LEVIN_ARITHMETIC(+, __builtin_add_overflow)}},
      {"_operator.sub", {2, LEVIN_ARITHMETIC(-, __builtin_sub_overflow)}},
      {"_operator.mul", {2, LEVIN_ARITHMETIC(*, __builtin_mul_overflow)}},
      {"_operator.eq", {2, LEVIN_COMPARISON(==)}},
      {"_operator.ne", {2, LEVIN_COMPARISON(!=)}},
      {"_operator.lt", {2, LEVIN_COMPARISON(<)}},
      {"_operator.le", {2, LEVIN_COMPARISON(<=)}},
      {"_operator.gt", {2, LEVIN_COMPARISON(>)}},
      {"_operator.ge", {2, LEVIN_COMPARISON(>=)}},
      {"_operator.floordiv",
       {2,
        [](Numbers n) {
          return arithmetic(
              n, [](int64_t a, int64_t b) { return IValue(whole_quotient(a, b)); },
              [](double a, double b) { return IValue(std::floor(a / b)); });
        }}},
      {"_operator.mod",
       {2,
        [](Numbers n) {
          return arithmetic(
              n, [](int64_t a, int64_t b) { return IValue(a - whole_quotient(a, b) * b); },
              [](double a, double b) { return IValue(floor_mod(a, b)); });
        }}},
      {"_operator.truediv", {2, [](Numbers n) { return IValue(real(*n[0]) / real(*n[1])); }}},
      {"_operator.pow", {2, power}},
      {"_operator.neg",
       {1,
        [](Numbers n) {
          return n[0]->isDouble() ? IValue(-n[0]->toDouble())
                                  : IValue(difference(0, integer(*n[0])));
        }}},
      {"_operator.pos", {1, [](Numbers n) { return *n[0]; }}},
      {"_operator.and_",
       {2,
        [](Numbers n) {
          return n[0]->isBool() && n[1]->isBool() ? IValue(n[0]->toBool() && n[1]->toBool())
                                                  : IValue(integer(*n[0]) & integer(*n[1]));
        }}},
      {"_operator.or_",
       {2,
        [](Numbers n) {
          return n[0]->isBool() && n[1]->isBool() ? IValue(n[0]->toBool() || n[1]->toBool())
                                                  : IValue(integer(*n[0]) | integer(*n[1]));
        }}},
      {"_operator.lshift",
       {2, [](Numbers n) { return IValue(integer(*n[0]) << (integer(*n[1]) & 63)); }}},
      {"_operator.rshift",
       {2, [](Numbers n) { return IValue(integer(*n[0]) >> (integer(*n[1]) & 63)); }}},
      {"math.trunc", {1, [](Numbers n) { return IValue(whole(real(*n[0]))); }}},
      {"math.floor", {1, [](Numbers n) { return IValue(whole(std::floor(real(*n[0])))); }}},
      {"math.ceil", {1, [](Numbers n) { return IValue(whole(std::ceil(real(*n[0])))); }}},
      {"torch.sym_int", {1, [](Numbers n) { return IValue(whole(real(*n[0]))); }}},
      {"torch.sym_float", {1, [](Numbers n) { return IValue(real(*n[0])); }}},
      {"torch.sym_not", {1, [](Numbers n) { return IValue(!truth(*n[0])); }}},
      {"torch.sym_ite", {3, [](Numbers n) { return truth(*n[0]) ? *n[1] : *n[2]; }}},
      {"torch.sym_sqrt", {1, [](Numbers n) { return IValue(std::sqrt(real(*n[0]))); }}},
      {"torch._sym_sqrt", {1, [](Numbers n) { return IValue(std::sqrt(real(*n[0]))); }}},
      {"torch.sym_max",
       {2,
        [](Numbers n) {
          return arithmetic(
              n, [](int64_t a, int64_t b) { return IValue(std::max(a, b)); },
              [](double a, double b) { return IValue(std::max(a, b)); });
        }}},
      {"torch.sym_min",
       {2,
        [](Numbers n) {
          return arithmetic(
              n, [](int64_t a, int64_t b) { return IValue(std::min(a, b)); },
              [](double a, double b) { return IValue(std::min(a, b)); });
        }}},
      {"torch.ops.aten.sym_size.int",
       {2, [](Numbers n) { return IValue(n[0]->toTensor().size(n[1]->toInt())); }}},
      {"torch.ops.aten.sym_stride.int",
       {2, [](Numbers n) { return IValue(n[0]->toTensor().stride(n[1]->toInt())); }}},
      {"torch.ops.aten.sym_numel.default",
       {1, [](Numbers n) { return IValue(n[0]->toTensor().numel()); }}},
      {"torch.ops.aten.sym_storage_offset.default",
       {1, [](Numbers n) { return IValue(n[0]->toTensor().storage_offset()); }}},
      {"torch.ops.aten.item.default",
       {1, [](Numbers n) { return IValue(n[0]->toTensor().item()); }}},
      {"torch.ops.aten._local_scalar_dense.default",
       {1, [](Numbers n) { return IValue(n[0]->toTensor().item()); }}},
  };
  return known;
}

#undef LEVIN_ARITHMETIC
#undef LEVIN_COMPARISON

class NumberStep final : public Step {
 public:
  NumberStep(const Node& node, Function function) : Step(node), function_(function) {}

  void run(Frame& frame) const override {
    std::array<const IValue*, 3> numbers = {};
    size_t count = 0;
    for (const NamedOperand& input : node().inputs) {
      numbers[count++] = &value_of(input.operand, frame);
    }
    frame.values[node().results.front().slots.front()] = function_(Numbers(numbers.data(), count));
  }

 private:
  Function function_;
};

}  // namespace

std::unique_ptr<Step> make_number_step(const Node& node) {
  const auto known = functions().find(node.target);
  if (known == functions().end()) return nullptr;
  const bool fits = node.inputs.size() == known->second.num_arguments && node.results.size() == 1 &&
                    node.results.front().kind == Result::Kind::kOne &&
                    std::ranges::all_of(node.inputs, [](const NamedOperand& input) {
                      return input.operand.kind == Operand::Kind::kSlot ||
                             input.operand.kind == Operand::Kind::kConstant;
                    });
  LEVIN_CHECK(fits, "interchange.archive", "{} has the wrong arguments", place_of(node));
  return std::make_unique<NumberStep>(node, known->second.function);
}

}  // namespace levin::interchange
