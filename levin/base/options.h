#pragma once
// Options aggregates: one fields(visitor) function serves flags, TOML, --help and checkpoints.
// A program reads them first thing; every room takes its part of them.
//
//   struct RunOptions {
//     int64_t hidden = 128;
//     void fields(levin::FieldVisitor& field) { field("hidden", hidden, "units of a layer"); }
//   };
//   auto run = levin::parse<RunOptions>(argc, argv, {.hidden = 256});

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"

// How values of options read as text: on the command line, in TOML, in --help, in a checkpoint.
// A type of one's own takes part by a to_text/from_text pair beside it.

namespace levin {

LEVIN_API std::string to_text(bool value);
LEVIN_API std::string to_text(int64_t value);
LEVIN_API std::string to_text(double value);
LEVIN_API std::string to_text(const std::string& value);

/// Each throws Error "base.text" with what came and what was wanted when text is no such value.
LEVIN_API void from_text(std::string_view text, bool& value);
LEVIN_API void from_text(std::string_view text, int64_t& value);
LEVIN_API void from_text(std::string_view text, double& value);
LEVIN_API void from_text(std::string_view text, std::string& value);

/// A list reads "a,b,c"; the comma after the last item is left out where that is not empty.
template <class T>
std::string to_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += to_text(value) + ",";
  if (text.size() > 1 && text[text.size() - 2] != ',') text.pop_back();
  return text;
}

template <class T>
void from_text(std::string_view text, std::vector<T>& values) {
  values.clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    from_text(text.substr(0, comma), values.emplace_back());
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
}

/// An unset optional reads "none".
template <class T>
std::string to_text(const std::optional<T>& value) {
  return value ? to_text(*value) : "none";
}

template <class T>
void from_text(std::string_view text, std::optional<T>& value) {
  if (text == "none") {
    value.reset();
  } else {
    from_text(text, value.emplace());
  }
}

/// Text of a file or of another process, for a message: control characters, marks that turn the
/// direction of writing and bytes that are no UTF-8 as "\n", "\x1b".
LEVIN_API std::string printable(std::string_view text);
/// The same for a text of several lines, which stay lines.
LEVIN_API std::string printable_lines(std::string_view text);

/// The candidate nearest to word by edit distance, if any is near enough to be a misspelling of it.
LEVIN_API std::optional<std::string> nearest(std::string_view word,
                                             const std::vector<std::string>& candidates);

/// One option of an aggregate, by reference.
struct Field {
  std::string name;  ///< snake_case; the flag is --snake-case, the TOML key snake_case
  /// One line, with the unit. --help and --print-config leave out an option without it.
  std::string help = {};
  std::string letter = {};    ///< "n": -n is the flag too
  std::string variable = {};  ///< of the environment, for where flags and file give no value
  bool is_switch = false;     ///< a bool: the flag may stand without a value
  bool is_number = false;     ///< TOML writes it without quotes
  bool is_list = false;       ///< a TOML array is taken too
  std::function<std::string()> get = {};
  std::function<void(std::string_view)> set = {};
};

/// Walks the fields of an options aggregate.
class LEVIN_API FieldVisitor {
 public:
  virtual ~FieldVisitor();

  template <class T>
  void operator()(std::string_view name, T& value, std::string_view help,
                  std::string_view letter = "") {
    Field field{std::string(name), std::string(help), std::string(letter)};
    field.is_switch = std::is_same_v<T, bool>;
    field.is_number = std::is_arithmetic_v<T>;
    field.is_list = requires { value.push_back(value.front()); } && !std::is_same_v<T, std::string>;
    field.get = [&value] { return to_text(value); };
    field.set = [&value](std::string_view text) { from_text(text, value); };
    visit(std::move(field));
  }

  /// Of a visitor that hands on what it is given.
  void take(Field field) { visit(std::move(field)); }

 protected:
  virtual void visit(Field field) = 0;
};

namespace detail {
using WalkFields = std::function<void(FieldVisitor&)>;

/// What parse_into does, as a function that neither prints nor exits: the text to print for --help
/// and --print-config, nothing when the program should go on.
LEVIN_API std::optional<std::string> read_options(int argc, const char* const* argv,
                                                  const WalkFields& walk);
LEVIN_API void read_options_or_exit(int argc, const char* const* argv, const WalkFields& walk);
LEVIN_API std::map<std::string, std::string> options_as_text(const WalkFields& walk);
}  // namespace detail

/// Fills the aggregates from `--config FILE.toml` and then from the flags, which win over the file.
/// `--help` prints every option with its default and `--print-config` the resulting TOML; both end
/// the program with exit code 0. A mistake prints its message and ends the program with exit code
/// 2: "base.options.unknown" (names the nearest known option), "base.options.value",
/// "base.options.config" (file missing or no TOML, with the line), "base.options.duplicate".
template <class... Options>
void parse_into(int argc, const char* const* argv, Options&... options) {
  detail::read_options_or_exit(argc, argv,
                               [&](FieldVisitor& field) { (options.fields(field), ...); });
}

/// The same for one aggregate, starting from the given defaults.
template <class Options>
Options parse(int argc, const char* const* argv, Options defaults = {}) {
  parse_into(argc, argv, defaults);
  return defaults;
}

/// Every option by name, as text; what a checkpoint records of a run.
template <class Options>
std::map<std::string, std::string> options_as_text(Options options) {
  return detail::options_as_text([&](FieldVisitor& field) { options.fields(field); });
}

}  // namespace levin
