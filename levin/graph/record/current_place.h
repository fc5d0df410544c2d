#pragma once
// current_place: the line of the user's code that is running, for an error.

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::graph {

/// ", in " with its function, file and line (which needs debug information); "" where it is not
/// known. Takes milliseconds.
LEVIN_API std::string current_place();

/// The same of the backtrace that a c10::Error holds.
LEVIN_API std::string place_in(const std::string& backtrace);

/// The same of a place that was noted, in microseconds, by torch::unwind::unwind().
LEVIN_API std::string place_of(const std::vector<void*>& frames);

/// "function at file:line" of each of several; "" where it is not known. One search of the debug information
/// serves all.
std::vector<std::string> sources_of(const std::vector<std::vector<void*>>& stacks);

/// A reason, "what; advice", with the place before the advice.
LEVIN_API std::string with_place(std::string reason, const std::string& place);

/// Finds whether a function with one of these words in its name is running on this thread.
class LEVIN_API StackSearch {
 public:
  explicit StackSearch(std::vector<std::string_view> words) : words_(std::move(words)) {}
  /// Takes microseconds for code that has been seen before.
  bool finds();

 private:
  std::vector<std::string_view> words_;
  std::mutex mutex_;
  std::unordered_map<void*, bool> known_;  ///< by the program counter
};

}  // namespace levin::graph
