#include "levin/interchange/export/record/recordings.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>

#include <algorithm>

#include "levin/graph/record/current_place.h"

namespace levin::interchange {
namespace {

/// To the bit: NaN is NaN.
bool is_same_tensor(const at::Tensor& left, const at::Tensor& right) {
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() &&
         at::equal(left.reshape(-1).view(at::kByte), right.reshape(-1).view(at::kByte));
}

bool is_same_argument(const RecordedArgument& left, const RecordedArgument& right, bool exactly) {
  return left.kind == right.kind && left.values == right.values &&
         is_same_constant(left.constant, right.constant, exactly);
}

bool is_same_mode(const CallMode& left, const CallMode& right) {
  return left.grad_enabled == right.grad_enabled &&
         left.autocast.enabled == right.autocast.enabled &&
         left.autocast.dtype == right.autocast.dtype;
}

bool is_same_value(const RecordedValue& left, const RecordedValue& right, bool exactly) {
  return left.origin == right.origin && left.dtype == right.dtype && left.device == right.device &&
         left.sizes.size() == right.sizes.size() &&
         (!exactly || (left.sizes == right.sizes && left.strides == right.strides));
}

/// Empty where they are the same.
std::string difference_of(const RecordedCall& first, const RecordedCall& second, bool exactly) {
  const std::string& name = first.op.schema().name();
  if (first.op != second.op) {
    return fmt::format("{} instead of {}", second.op.schema().name(), name);
  }
  for (size_t i = 0; i < first.arguments.size(); ++i) {
    if (!is_same_argument(first.arguments[i], second.arguments[i], exactly)) {
      return fmt::format("{} with another argument {}", name,
                         first.op.schema().arguments()[i].name());
    }
  }
  for (size_t i = 0; i < first.results.size(); ++i) {
    if (first.results[i].values != second.results[i].values) {
      return fmt::format("{} with {} results instead of {}", name, second.results[i].values.size(),
                         first.results[i].values.size());
    }
  }
  if (!is_same_mode(first.mode, second.mode)) {
    return fmt::format("{} with gradients or autocast switched", name);
  }
  return "";
}

std::string place_of(const RecordedCall& call) {
  return call.frames.empty() ? "" : graph::place_of(call.frames);
}

}  // namespace

std::vector<ConstantNumber> numbers_of(const c10::IValue& constant) {
  std::vector<ConstantNumber> numbers;
  const auto whole = [&](int64_t number) { numbers.push_back({.whole = number}); };
  const auto real = [&](double number) { numbers.push_back({.is_real = true, .real = number}); };
  if (constant.isInt()) whole(constant.toInt());
  if (constant.isDouble()) real(constant.toDouble());
  if (constant.isIntList()) std::ranges::for_each(constant.toIntVector(), whole);
  if (constant.isDoubleList()) std::ranges::for_each(constant.toDoubleVector(), real);
  return numbers;
}

bool is_same_constant(const c10::IValue& left, const c10::IValue& right, bool exactly) {
  if (left.tagKind() != right.tagKind()) return false;
  const auto left_numbers = numbers_of(left), right_numbers = numbers_of(right);
  if (left_numbers.size() != right_numbers.size()) return false;
  const bool has_numbers = !left_numbers.empty();
  if (has_numbers && !exactly) return true;
  if (has_numbers) {
    return std::ranges::equal(left_numbers, right_numbers, [](const auto& a, const auto& b) {
      return a.whole == b.whole && (a.real == b.real || (a.real != a.real && b.real != b.real));
    });
  }
  return left.isNone() || left == right;
}

std::string difference_of(const Recording& first, const Recording& second, bool exactly) {
  for (size_t i = 0; i < std::min(first.calls.size(), second.calls.size()); ++i) {
    const std::string difference = difference_of(first.calls[i], second.calls[i], exactly);
    if (!difference.empty()) return difference + place_of(first.calls[i]);
  }
  if (first.calls.size() != second.calls.size()) {
    return fmt::format("{} operators instead of {}", second.calls.size(), first.calls.size());
  }
  for (size_t i = 0; i < std::min(first.values.size(), second.values.size()); ++i) {
    const RecordedValue& value = first.values[i];
    if (is_same_value(value, second.values[i], exactly)) continue;
    if (value.origin != RecordedValue::Origin::kResult) return "a constant of another size";
    return fmt::format(
        "{} with a result of another {}{}", first.calls[value.index].op.schema().name(),
        exactly ? "size" : "dtype or number of dims", place_of(first.calls[value.index]));
  }
  if (first.constants.size() != second.constants.size() ||
      !std::ranges::equal(first.constants, second.constants, is_same_tensor)) {
    return "another constant tensor, one that no operator made";
  }
  if (first.output_tree != second.output_tree ||
      !std::ranges::equal(first.outputs, second.outputs, [&](const auto& a, const auto& b) {
        return is_same_argument(a, b, exactly);
      })) {
    return "another result of forward";
  }
  return "";
}

std::vector<ValueId> roots_of(const Recording& recording) {
  std::vector<ValueId> roots(recording.values.size());
  for (ValueId id = 0; id < roots.size(); ++id) roots[id] = id;
  for (const RecordedCall& call : recording.calls) {
    const auto& formals = call.op.schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      if (formals[i].alias_info() == nullptr || call.arguments[i].values.empty()) continue;
      const ValueId base = call.arguments[i].values.front();
      if (base == kNoValue) continue;
      const auto& returns = call.op.schema().returns();
      for (size_t j = 0; j < returns.size(); ++j) {
        if (returns[j].alias_info() == nullptr) continue;
        for (const ValueId id : call.results[j].values) {
          if (id != kNoValue && id != base) roots[id] = roots[base];
        }
      }
    }
  }
  return roots;
}

}  // namespace levin::interchange
