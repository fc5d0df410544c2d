#pragma once
// SaidErrors: the errors that the ranks of a node end with, "error: ... [rank 1]" or an Error's what()
// on stderr. A mistake that several of them make is shown once.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace levin::launch {

class SaidErrors {
 public:
  /// Whether a rank has ended with this line: it is all of an error, with the rank.
  static bool is_error(std::string_view line);
  /// False for an error that another rank was shown with.
  bool is_news(int64_t rank, std::string_view line);
  /// "rank 1, 2 ended with the error of rank 0"; empty where each was shown.
  std::string others() const;

 private:
  struct Speakers {
    int64_t first = 0;
    std::set<int64_t> others = {};
  };
  std::map<std::string, Speakers> errors_;  ///< by their text without the rank
};

}  // namespace levin::launch
