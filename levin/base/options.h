#pragma once
// Options: structs whose fields(visitor) function makes them command-line flags, TOML keys, lines
// of --help and entries of a checkpoint. A program parses them at its start and passes each part of
// levin its own options.
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

// Conversion of option values to and from text: on the command line, in TOML, in --help and in a
// checkpoint. A type of your own becomes usable with a to_text/from_text pair in its namespace.
//
//   levin::to_text(std::vector<int64_t>{1, 2});   // "1,2"
//   int64_t n = 0;
//   levin::from_text("12", n);

namespace levin {

/// Returns "true" or "false".
LEVIN_API std::string to_text(bool value);
/// Returns the decimal digits.
LEVIN_API std::string to_text(int64_t value);
/// Returns the shortest decimal text that reads back as the same value; "-0.0" for negative zero.
LEVIN_API std::string to_text(double value);
/// Returns the text itself.
LEVIN_API std::string to_text(const std::string& value);

/// Reads true, 1, yes or on, and false, 0, no or off. Throws Error "base.text", which says what
/// came and what was wanted, for other text.
LEVIN_API void from_text(std::string_view text, bool& value);
/// Reads an integer. Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, int64_t& value);
/// Reads a number. Throws Error "base.text" for other text.
LEVIN_API void from_text(std::string_view text, double& value);
/// Copies the text.
LEVIN_API void from_text(std::string_view text, std::string& value);

/// Returns a list as "a,b,c". A comma follows the last item only if that item is empty text.
template <class T>
std::string to_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += to_text(value) + ",";
  if (text.size() > 1 && text[text.size() - 2] != ',') text.pop_back();
  return text;
}

/// Reads a list from "a,b,c"; a comma at the end is allowed. Throws what from_text of an item does.
template <class T>
void from_text(std::string_view text, std::vector<T>& values) {
  values.clear();
  while (!text.empty()) {
    const size_t comma = text.find(',');
    from_text(text.substr(0, comma), values.emplace_back());
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
}

/// Returns "none" for an empty optional, else the text of its value.
template <class T>
std::string to_text(const std::optional<T>& value) {
  return value ? to_text(*value) : "none";
}

/// Reads an optional: "none" makes it empty, other text is read as its value.
template <class T>
void from_text(std::string_view text, std::optional<T>& value) {
  if (text == "none") {
    value.reset();
  } else {
    from_text(text, value.emplace());
  }
}

/// Escapes text that comes from a file or another process so that it is safe in a message: control
/// characters, marks that change the writing direction and bytes that are not UTF-8 become "\n",
/// "\x1b" and so on.
LEVIN_API std::string printable(std::string_view text);
/// Escapes text like printable(), but keeps its line breaks.
LEVIN_API std::string printable_lines(std::string_view text);

/// Returns the candidate with the smallest edit distance to word, or nothing if none is close
/// enough that word may be a misspelling of it.
LEVIN_API std::optional<std::string> nearest(std::string_view word,
                                             const std::vector<std::string>& candidates);

/// One option: its names, its help and functions that read and write the variable behind it.
struct Field {
  /// Name in snake_case; the flag is --snake-case, the TOML key snake_case. A name with a dot is an
  /// option of a section: "optimizer.lr" is --optimizer.lr, and lr in the TOML table [optimizer].
  std::string name;
  /// One line of help, with the unit. --help and --print-config skip an option without help.
  std::string help = {};
  std::string letter = {};    ///< short flag: "n" adds -n
  std::string variable = {};  ///< environment variable, read if neither flags nor file set a value
  bool is_switch = false;     ///< true for a bool: the flag may stand without a value
  bool is_number = false;     ///< true for a number: TOML writes it without quotes
  bool is_list = false;       ///< true for a list: TOML may give an array
  std::function<std::string()> get = {};  ///< returns the current value as text
  /// Sets the value from text. It throws what from_text throws.
  std::function<void(std::string_view)> set = {};
  /// Returns whether an option without a default has a value. --print-config and records leave the
  /// option out while it has none. Empty: the option always has a value.
  std::function<bool()> is_given = {};
};

/// Base class of everything that walks the fields of an options struct: the parser, the writer of
/// --help, the recorder of a checkpoint. An options struct calls it once for each field.
class LEVIN_API FieldVisitor {
 public:
  virtual ~FieldVisitor();

  /// Visits one field of an options struct. name: in snake_case. value: the field; it must outlive
  /// the visit. help: one line, with the unit. letter: "n" adds the short flag -n.
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

  /// Visits a field that another visitor has made. Visitors that forward fields call it.
  void take(Field field) { visit(std::move(field)); }

 protected:
  /// Receives each field.
  virtual void visit(Field field) = 0;
};

namespace detail {
using WalkFields = std::function<void(FieldVisitor&)>;

/// Does the work of parse_into, but neither prints nor exits. Returns the text to print for --help
/// and --print-config, or nothing if the program should go on.
LEVIN_API std::optional<std::string> read_options(int argc, const char* const* argv,
                                                  const WalkFields& walk);
LEVIN_API void read_options_or_exit(int argc, const char* const* argv, const WalkFields& walk);
LEVIN_API std::map<std::string, std::string> options_as_text(const WalkFields& walk);
LEVIN_API void set_options(const std::map<std::string, std::string>& values,
                           const WalkFields& walk);
}  // namespace detail

/// Fills the options from `--config FILE.toml`, then from environment variables (LEVIN_MAX_EPOCHS
/// for --max-epochs, LEVIN_OPTIMIZER__LR for --optimizer.lr), and then from the flags; the last one
/// wins. A variable that is nearly an option's is a warning.
///
/// `--help` prints the options with their defaults, `--help WORD` those with this word in their
/// name or heading, and `--help-all` all, with the options of sections. `--print-config` prints the
/// resulting TOML. They end the program with exit code 0. A mistake prints its message and ends the
/// program with exit code 2. The ids are "base.options.unknown" (names the nearest known option),
/// "base.options.value", "base.options.config" (the file is missing or is not TOML, with the line)
/// and "base.options.duplicate" (two options have one name).
template <class... Options>
void parse_into(int argc, const char* const* argv, Options&... options) {
  detail::read_options_or_exit(argc, argv,
                               [&](FieldVisitor& field) { (options.fields(field), ...); });
}

/// Returns one options struct, filled like parse_into() from the given defaults.
template <class Options>
Options parse(int argc, const char* const* argv, Options defaults = {}) {
  parse_into(argc, argv, defaults);
  return defaults;
}

/// Returns each option by name with its value as text. Checkpoints record a run's options so.
template <class Options>
std::map<std::string, std::string> options_as_text(Options options) {
  return detail::options_as_text([&](FieldVisitor& field) { options.fields(field); });
}

/// Sets options by name from text, the reverse of options_as_text(); others keep their values.
/// Throws Error "base.options.unknown" for a name that is no option, and "base.options.value" for a
/// value that cannot be read.
template <class Options>
void set_options(Options& options, const std::map<std::string, std::string>& values) {
  detail::set_options(values, [&](FieldVisitor& field) { options.fields(field); });
}

}  // namespace levin
