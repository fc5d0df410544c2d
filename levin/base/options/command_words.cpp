#include "levin/base/options/command_words.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::detail {
namespace {

class Splitter {
 public:
  Splitter(const std::vector<std::string>& words, const std::vector<Flag>& flags,
           const CommandRules& rules)
      : words_(words), flags_(flags), rules_(rules) {
    for (size_t i = 0; i < flags.size(); ++i) {
      for (const std::string& name : flags[i].names) known_[name] = static_cast<int64_t>(i);
    }
  }

  std::vector<CommandWord> split() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      CommandWord read = read_flag(word);
      if (read.flag >= 0) take_value(read);
      const bool is_end = read.flag < 0 && (rules_.ends_at_word || word == "--");
      read_.push_back(std::move(read));
      if (is_end) break;
    }
    while (next_ < words_.size()) read_.push_back({.text = words_[next_++]});
    return std::move(read_);
  }

 private:
  /// "--name", "--name=value", "-n", "-n4" and "-n=4".
  CommandWord read_flag(const std::string& word) const {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (const auto found = known_.find(name); found != known_.end()) {
      CommandWord read{.flag = found->second, .text = name};
      if (equals != std::string::npos) read.value = word.substr(equals + 1);
      return read;
    }
    if (const auto found = known_.find(word.substr(0, 2));
        is_short(word) && found != known_.end()) {
      return {.flag = found->second, .text = found->first, .value = word.substr(2)};
    }
    return {.text = word};
  }

  void take_value(CommandWord& read) {
    const FlagValue rule = flags_[static_cast<size_t>(read.flag)].value;
    if (read.value || rule == FlagValue::kAttached) return;
    const bool is_there = next_ < words_.size();
    if (is_there && !looks_like_option(words_[next_])) {
      read.value = words_[next_++];
      return;
    }
    if (rule == FlagValue::kPossible) return;
    LEVIN_CHECK(!is_there, rules_.error_id,
                "{0} got no value, because the next word '{1}' is an option; give a value, or "
                "write {0}={1} if that is the value",
                read.text, printable(is_there ? words_[next_] : ""));
    LEVIN_FAIL(rules_.error_id, "{0} got no value; give one, or write {0}= for an empty value",
               read.text);
  }

  static bool is_short(const std::string& word) {
    return word.size() > 2 && word[0] == '-' && word[1] != '-';
  }

  /// Numbers do not: "-1", "-.5", "-inf".
  bool looks_like_option(const std::string& word) const {
    if (word == "--" || read_flag(word).flag >= 0) return true;
    if (!word.starts_with("--") || word.size() < 3 || !is_letter(word[2])) return false;
    const auto name = std::string_view(word).substr(2, word.find('=') - 2);
    return std::ranges::all_of(name, [](char c) {
      return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
  }

  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  const std::vector<std::string>& words_;
  const std::vector<Flag>& flags_;
  const CommandRules& rules_;
  std::map<std::string, int64_t> known_;
  size_t next_ = 0;
  std::vector<CommandWord> read_;
};

}  // namespace

std::vector<CommandWord> split_command_line(const std::vector<std::string>& words,
                                            const std::vector<Flag>& flags,
                                            const CommandRules& rules) {
  return Splitter(words, flags, rules).split();
}

}  // namespace levin::detail
