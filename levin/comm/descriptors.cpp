#include "levin/comm/descriptors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace levin::comm {
namespace {

constexpr int64_t kOfProgram = 512;  // libraries, data sets, logs

int64_t number_of(rlim_t limit) {
  constexpr auto kMost = static_cast<rlim_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(limit, kMost));
}

}  // namespace

int64_t allow_descriptors(int64_t needed) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<int64_t>::max();
  const auto wanted = static_cast<rlim_t>(needed + kOfProgram);
  if (limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max) {
    rlimit higher = limit;
    higher.rlim_cur = std::min(wanted, limit.rlim_max);
    if (::setrlimit(RLIMIT_NOFILE, &higher) == 0) limit = higher;
  }
  return number_of(limit.rlim_cur);
}

std::string shortage_of_descriptors(int64_t needed) {
  const int64_t limit = allow_descriptors(needed);
  if (limit >= needed + kOfProgram) return "";
  return fmt::format(
      " (this process may open {} files but needs {}; raise the limit with ulimit -n)", limit,
      needed + kOfProgram);
}

}  // namespace levin::comm
