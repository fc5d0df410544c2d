#include <ATen/ops/isclose.h>
#include <c10/util/StringUtil.h>
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "levin/base/options.h"
#include "tools/ckpt/ckpt.h"

namespace levin::tools {
namespace {

std::string words_of(const State::Value& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
    return fmt::format("{} {}", c10::toString(tensor->scalar_type()), c10::str(tensor->sizes()));
  }
  if (const auto* text = std::get_if<std::string>(&value)) return "'" + printable(*text) + "'";
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.17g}", *number);
  return "a tree";
}

class Comparison {
 public:
  explicit Comparison(const Tolerance& tolerance) : tolerance_(tolerance) {}

  void compare(const State& one, const State& other, const std::string& path) {
    std::set<std::string> names;
    for (const auto& [name, value] : one.values()) names.insert(name);
    for (const auto& [name, value] : other.values()) names.insert(name);
    for (const std::string& name : names) {
      const std::string place = path + printable(name);
      if (!one.contains(name)) {
        text +=
            fmt::format("{}: only in the second, {}\n", place, words_of(other.values().at(name)));
      } else if (!other.contains(name)) {
        text += fmt::format("{}: only in the first, {}\n", place, words_of(one.values().at(name)));
      } else {
        compare(one.values().at(name), other.values().at(name), place);
      }
    }
  }

  std::string text;

 private:
  void compare(const State::Value& one, const State::Value& other, const std::string& place) {
    const auto *first = std::get_if<State>(&one), *second = std::get_if<State>(&other);
    if (first != nullptr && second != nullptr) return compare(*first, *second, place + "/");
    const auto *a = std::get_if<at::Tensor>(&one), *b = std::get_if<at::Tensor>(&other);
    if (a != nullptr && b != nullptr && a->sizes() == b->sizes() &&
        a->scalar_type() == b->scalar_type()) {
      return compare(*a, *b, place);
    }
    const auto *x = std::get_if<double>(&one), *y = std::get_if<double>(&other);
    const bool is_near =
        x != nullptr && y != nullptr &&
        (std::abs(*x - *y) <= tolerance_.absolute + tolerance_.relative * std::abs(*y) ||
         (std::isnan(*x) && std::isnan(*y)));
    const std::string before = words_of(one), after = words_of(other);
    if (!is_near && (one.index() != other.index() || before != after)) {
      text += fmt::format("{}: {} and {}\n", place, before, after);
    }
  }

  void compare(const at::Tensor& one, const at::Tensor& other, const std::string& place) {
    const bool is_exact = !at::isFloatingType(one.scalar_type()) && !one.is_complex();
    const at::ScalarType wide = one.is_complex() ? at::kComplexDouble : at::kDouble;
    const at::Tensor a = is_exact ? one : one.to(wide), b = is_exact ? other : other.to(wide);
    const at::Tensor same = is_exact ? a.eq(b)
                                     : at::isclose(a, b, tolerance_.relative, tolerance_.absolute,
                                                   /*equal_nan=*/true);
    const int64_t count = one.numel() - same.sum().item<int64_t>();
    if (count == 0) return;
    const double most = (one.to(wide) - other.to(wide)).abs().max().item<double>();
    text +=
        fmt::format("{}: {} of {} numbers, by {:.3g} at most\n", place, count, one.numel(), most);
  }

  Tolerance tolerance_;
};

}  // namespace

std::string differences(const CheckpointContents& one, const CheckpointContents& other,
                        const Tolerance& tolerance) {
  Comparison comparison(tolerance);
  State first, second;
  for (const auto& [model, state] : one.weights) first.set(model, state);
  for (const auto& [model, state] : other.weights) second.set(model, state);
  comparison.compare(first, second, "");
  comparison.compare(one.training, other.training, "training/");
  return comparison.text;
}

}  // namespace levin::tools
