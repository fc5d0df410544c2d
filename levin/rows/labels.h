#pragma once
// Labels: the classes of a file's rows as numbers, in the order in which their names are sorted. Not for
// users.
//
//   Labels labels(known, has_kinds);
//   for (...) labels.add(made.label, record.where());
//   labels.finish();                                   // labels.values(), labels.set().names

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "levin/base/export.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {

/// Classes by number (with or without names), one number or several.
enum class LabelKind { kNone, kClasses, kNumber, kNumbers };

/// The kind of a file's labels, and their classes.
struct LabelSet {
  LabelKind kind = LabelKind::kNone;
  int64_t count = 0;               ///< number of classes, or of numbers
  std::vector<std::string> names;  ///< names of classes; empty: they are numbers
  bool operator==(const LabelSet&) const = default;
};

class LEVIN_API Labels {
 public:
  /// known: what another file or the user says they are, and nothing else is. has_kinds: the file tells
  /// numbers from texts; else texts that are all numbers are. problem: RowsOptions::problem_type.
  Labels(std::optional<LabelSet> known, bool has_kinds, std::string problem = "");

  /// Throws Error "text.rows.label" that begins with the place.
  void add(const Label& label, std::string_view place);
  /// Returns the provisional number of a tag, for number() once all are added; -100 stays -100.
  int32_t add_tag(const Label& tag, std::string_view place);

  /// No more are added. Throws Error "text.rows.label" where texts are numbers of both kinds.
  void finish();
  const LabelSet& set() const { return set_; }
  /// The values of the labels that were added, `count` each if they are several numbers.
  const std::vector<double>& values() const { return values_; }
  /// Returns the class of a number that add_tag returned.
  int32_t number(int32_t provisional) const;

 private:
  Label understood(Label label) const;
  int64_t number_of(const std::string& name, std::string_view place);
  int64_t number_of(int64_t value, std::string_view place) const;
  void expect(LabelKind kind, bool by_name, std::string_view place);
  void check_problem(const Label& label, std::string_view place) const;
  bool become_numbers();

  std::optional<LabelSet> known_;
  bool has_kinds_;
  std::string problem_;
  LabelSet set_;
  bool by_name_ = false;
  std::unordered_map<std::string, int64_t> found_;  ///< names by the order in which they came
  std::vector<double> values_;
  std::vector<double> numbers_;  ///< values of names, in that order
  int64_t greatest_ = -1;
};

}  // namespace levin::text::row
