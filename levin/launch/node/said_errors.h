#pragma once
// SaidErrors: the errors that the ranks of a node end with, "error: ... [rank 1]" or an Error's what()
// on stderr. A mistake that several of them make is shown once.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace levin::launch {

class SaidErrors {
 public:
  /// Returns whether the line is an error that ended a rank: it is the full error, with the rank.
  static bool is_error(std::string_view line) {
    return (line.starts_with(kError) || starts_with_id(line)) &&
           line.find(kRank) != std::string_view::npos;
  }

  /// False for an error that another rank was shown with.
  bool is_news(int64_t rank, std::string_view line) {
    if (!is_error(line)) return true;
    const auto [speakers, is_first] = errors_.try_emplace(without_rank(line), Speakers{rank});
    if (is_first || speakers->second.first == rank) return true;
    speakers->second.others.insert(rank);
    return false;
  }

  /// "rank 1, 2 ended with the error of rank 0"; empty where each was shown.
  std::string others() const {
    std::string text;
    for (const auto& [error, speakers] : errors_) {
      if (speakers.others.empty()) continue;
      std::string ranks;
      for (const int64_t rank : speakers.others) {
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      }
      text += (text.empty() ? "rank " : "; rank ") + ranks + " ended with the error of rank " +
              std::to_string(speakers.first);
    }
    return text;
  }

 private:
  static constexpr std::string_view kError = "error: ";
  static constexpr std::string_view kRank = "[rank ";

  /// Removes the number in "[rank 1]" and "[rank 1, epoch 2]".
  static std::string without_rank(std::string_view line) {
    std::string text(line);
    const size_t found = text.rfind(kRank);
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(found + kRank.size());
    text.erase(begin, std::find_if(begin, text.end(),
                                   [](unsigned char sign) { return std::isdigit(sign) == 0; }));
    return text;
  }

  /// "data.loader: ", as Error::what() begins, which programs print too.
  static bool starts_with_id(std::string_view line) {
    const std::string_view id = line.substr(0, line.find(": "));
    const bool is_made_of_words = std::ranges::all_of(id, [](unsigned char sign) {
      return std::islower(sign) != 0 || std::isdigit(sign) != 0 || sign == '_' || sign == '.';
    });
    return id.size() < line.size() && is_made_of_words && id.find('.') != std::string_view::npos;
  }

  struct Speakers {
    int64_t first = 0;
    std::set<int64_t> others = {};
  };
  std::map<std::string, Speakers> errors_;  ///< by their text without the rank
};

}  // namespace levin::launch
