#include "levin/rows/labels.h"

#include <algorithm>
#include <charconv>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::text::row {
namespace {

constexpr int64_t kMostClasses = 1 << 24;
constexpr const char* kClassify = "single_label_classification";
constexpr const char* kRegression = "regression";
constexpr const char* kMultiLabel = "multi_label_classification";

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

std::string words_of(LabelKind kind, bool by_name) {
  switch (kind) {
    case LabelKind::kNone:
      return "nothing";
    case LabelKind::kClasses:
      return by_name ? "a string" : "an integer";
    case LabelKind::kNumber:
      return "a float";
    case LabelKind::kNumbers:
      return "a list of numbers";
  }
  return "";
}

}  // namespace

Labels::Labels(std::optional<LabelSet> known, bool has_kinds, std::string problem)
    : known_(std::move(known)), has_kinds_(has_kinds), problem_(std::move(problem)) {
  if (!known_) return;
  set_ = *known_;
  for (const std::string& name : set_.names) {
    LEVIN_CHECK(found_.emplace(name, std::ssize(found_)).second, "text.rows.options",
                "label_names has '{}' twice", printable(name));
  }
  by_name_ = !set_.names.empty();
}

/// A text of a file without kinds is the number that is wanted; a number what problem_type says that it is.
Label Labels::understood(Label label) const {
  if (const auto* whole = std::get_if<int64_t>(&label); whole != nullptr && problem_ == kRegression)
    return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&label);
      number != nullptr && problem_ == kClassify) {
    if (const auto whole = static_cast<int64_t>(*number); static_cast<double>(whole) == *number)
      return whole;
  }
  const auto* text = std::get_if<std::string>(&label);
  if (text == nullptr || has_kinds_) return label;
  if (problem_ == kRegression || (known_ && known_->kind == LabelKind::kNumber)) {
    if (const auto number = number_in<double>(*text)) return *number;
  }
  if (!known_) return label;
  if (known_->kind == LabelKind::kClasses && !found_.contains(*text)) {
    if (const auto number = number_in<int64_t>(*text)) return *number;
  }
  return label;
}

void Labels::expect(LabelKind kind, bool by_name, std::string_view place) {
  if (set_.kind == LabelKind::kNone && !known_) {
    set_.kind = kind;
    by_name_ = by_name;
    return;
  }
  const bool is_mixed = !known_ && !by_name && !by_name_ &&
                        ((set_.kind == LabelKind::kClasses && kind == LabelKind::kNumber) ||
                         (set_.kind == LabelKind::kNumber && kind == LabelKind::kClasses));
  LEVIN_CHECK(!is_mixed, "text.rows.label",
              "{}: the label is {}, but {} in earlier rows; set problem_type to regression if "
              "labels are values, or write classes as strings",
              place, words_of(kind, by_name), words_of(set_.kind, by_name_));
  const bool fits =
      set_.kind == kind || (set_.kind == LabelKind::kNumber && kind == LabelKind::kClasses);
  const bool named = kind != LabelKind::kClasses || by_name == by_name_ || (known_ && by_name_);
  LEVIN_CHECK(fits && (named && (set_.kind == kind || !by_name)), "text.rows.label",
              "{}: the label is {}, wanted {} as in {}", place, words_of(kind, by_name),
              words_of(set_.kind, by_name_), known_ ? "the known labels" : "earlier rows");
}

int64_t Labels::number_of(const std::string& name, std::string_view place) {
  const auto [at, is_new] = found_.emplace(name, std::ssize(found_));
  if (!is_new || !known_) return at->second;
  found_.erase(at);
  const auto near = nearest(name, known_->names);
  LEVIN_FAIL("text.rows.label", "{}: got the label '{}', which is not one of the {} known labels{}",
             place, printable(name), known_->names.size(),
             near ? "; did you mean '" + printable(*near) + "'?" : "");
}

int64_t Labels::number_of(int64_t value, std::string_view place) const {
  const int64_t most = known_ ? known_->count : kMostClasses;
  LEVIN_CHECK(value >= 0 && value < most, "text.rows.label", "{}: the label is {}, wanted 0 to {}",
              place, value, most - 1);
  return value;
}

/// Checks that a label has the type that problem_type requires.
void Labels::check_problem(const Label& label, std::string_view place) const {
  const bool is_text = std::holds_alternative<std::string>(label);
  const bool is_list = std::holds_alternative<std::vector<double>>(label);
  const bool is_number = std::holds_alternative<double>(label);
  if (problem_.empty() || std::holds_alternative<std::monostate>(label)) return;
  const bool fits = problem_ == kRegression   ? is_number
                    : problem_ == kMultiLabel ? is_list
                                              : !is_list && !is_number;
  const LabelKind kind = is_list     ? LabelKind::kNumbers
                         : is_number ? LabelKind::kNumber
                                     : LabelKind::kClasses;
  LEVIN_CHECK(fits, "text.rows.label", "{}: the label is {}, wanted {} for problem_type = {}",
              place, words_of(kind, is_text),
              problem_ == kRegression   ? "a number"
              : problem_ == kMultiLabel ? "a list of numbers"
                                        : "a string or an integer",
              problem_);
}

void Labels::add(const Label& given, std::string_view place) {
  const Label label = understood(given);
  check_problem(label, place);
  if (const auto* name = std::get_if<std::string>(&label)) {
    expect(LabelKind::kClasses, true, place);
    values_.push_back(static_cast<double>(number_of(*name, place)));
  } else if (const auto* value = std::get_if<int64_t>(&label)) {
    expect(LabelKind::kClasses, false, place);
    const bool is_class = set_.kind == LabelKind::kClasses;
    const int64_t number = is_class ? number_of(*value, place) : *value;
    greatest_ = std::max(greatest_, number);
    values_.push_back(static_cast<double>(number));
  } else if (const auto* number = std::get_if<double>(&label)) {
    expect(LabelKind::kNumber, false, place);
    values_.push_back(*number);
  } else if (const auto* list = std::get_if<std::vector<double>>(&label)) {
    expect(LabelKind::kNumbers, false, place);
    if (set_.count == 0) set_.count = std::ssize(*list);
    LEVIN_CHECK(!list->empty() && std::ssize(*list) == set_.count, "text.rows.label",
                "{}: the label has {} numbers, wanted {} as in earlier rows", place, list->size(),
                std::max<int64_t>(set_.count, 1));
    values_.insert(values_.end(), list->begin(), list->end());
  }
}

int32_t Labels::add_tag(const Label& given, std::string_view place) {
  const Label tag = understood(given);
  if (const auto* name = std::get_if<std::string>(&tag)) {
    expect(LabelKind::kClasses, true, place);
    return static_cast<int32_t>(number_of(*name, place));
  }
  const int64_t value = std::get<int64_t>(tag);
  if (value == kIgnored) return kIgnored;
  expect(LabelKind::kClasses, false, place);
  greatest_ = std::max(greatest_, number_of(value, place));
  return static_cast<int32_t>(value);
}

/// Turns the labels into numbers if a file without kinds has numbers alone. Returns whether it did.
bool Labels::become_numbers() {
  if (has_kinds_ || known_ || set_.kind != LabelKind::kClasses || !by_name_) return false;
  std::vector<double> numbers(found_.size());
  bool are_classes = true;
  std::string with_point, without;
  for (const auto& [name, order] : found_) {
    const auto whole = number_in<int64_t>(name);
    const auto any = number_in<double>(name);
    if (!any) return false;
    are_classes = are_classes && whole && *whole >= 0 && *whole < kMostClasses;
    (whole ? without : with_point) = name;
    numbers[static_cast<size_t>(order)] = *any;
    if (whole) greatest_ = std::max(greatest_, *whole);
  }
  if (problem_ == kClassify && !are_classes) return false;
  LEVIN_CHECK(with_point.empty() || without.empty(), "text.rows.label",
              "labels are floats ('{}') and integers ('{}'); set problem_type to regression if "
              "they are values, or to single_label_classification if they are classes",
              printable(with_point), printable(without));
  numbers_ = std::move(numbers);
  by_name_ = false;
  set_.kind = are_classes ? LabelKind::kClasses : LabelKind::kNumber;
  return true;
}

void Labels::finish() {
  if (!become_numbers() && by_name_ && !known_) {
    for (const auto& [name, order] : found_) set_.names.push_back(name);
    std::ranges::sort(set_.names);
    numbers_.resize(found_.size());
    for (size_t i = 0; i < set_.names.size(); ++i) {
      numbers_[static_cast<size_t>(found_.at(set_.names[i]))] = static_cast<double>(i);
    }
  }
  if (!numbers_.empty()) {
    for (double& value : values_) value = numbers_[static_cast<size_t>(value)];
  }
  if (known_) return;
  if (set_.kind == LabelKind::kNumber) set_.count = 1;
  if (set_.kind == LabelKind::kClasses) {
    set_.count = by_name_ ? std::ssize(set_.names) : greatest_ + 1;
  }
}

int32_t Labels::number(int32_t provisional) const {
  if (provisional == kIgnored || numbers_.empty()) return provisional;
  return static_cast<int32_t>(numbers_[static_cast<size_t>(provisional)]);
}

}  // namespace levin::text::row
