#include "levin/launch/command_line.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "levin/base/options/placed_fields.h"
#include "levin/base/options/read_options.h"

namespace levin::launch {
namespace {

/// Options that each node gets by itself: where the nodes meet and how many there are.
constexpr std::array<std::string_view, 7> kOfEachNode = {
    "nnodes",   "node_rank",        "rdzv_endpoint",     "rdzv_id",
    "master_*", "token_from_input", "signals_from_input"};

/// The flags, with values, of options that are not as usual.
struct FlagsUnlike final : FieldVisitor {
  const std::map<std::string, std::string> usual = options_as_text(LaunchOptions());
  std::vector<std::string> words;

  void visit(Field field) override {
    const auto is_name = [&](std::string_view pattern) { return stands_for(pattern, field.name); };
    if (field.name.empty() || std::ranges::any_of(kOfEachNode, is_name)) return;
    if (field.get() == usual.at(field.name)) return;
    words.insert(words.end(), {levin::detail::flag_of(field.name), field.get()});
  }
};

}  // namespace

std::vector<std::string> flags_of(LaunchOptions options) {
  FlagsUnlike flags;
  options.fields(flags);
  return std::move(flags.words);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace levin::launch
