#pragma once
// RankFailure: why a rank, and with it the whole group, ended.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::launch {

struct RankFailure {
  int64_t rank = -1;  ///< -1: no rank but a node or the program itself
  std::string host = {};
  int64_t pid = 0;
  int64_t exit_code = 0;
  int64_t signal = 0;                        ///< signal that killed it; 0: it ended with exit_code
  std::vector<std::string> last_lines = {};  ///< last lines of its stderr
  std::string text = {};        ///< the failure of something other than a rank, or the reason why
                                ///< the rank's end is not known
  bool is_explained = false;    ///< the last of these lines is an error that this console shows
  bool worth_a_restart = true;  ///< not so for a program that cannot be started
};

/// Returns the exit code that a shell gives: the exit code, or 128 + the signal.
LEVIN_API int exit_code_of(const RankFailure& failure);

/// Returns the exit code of a launcher whose job ends because another node is gone: 1, and in
/// Kubernetes the code with which the pod is started again.
LEVIN_API int exit_code_for_lost_node();

/// "signal 9 (SIGKILL)" or "exit code 3".
LEVIN_API std::string ending_of(const RankFailure& failure);

/// The summary for the user, several lines.
LEVIN_API std::string describe(const RankFailure& failure);

}  // namespace levin::launch
