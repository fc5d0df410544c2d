#include "levin/base/log.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

#include "levin/base/rank.h"

namespace levin::log {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

Level threshold() {
  const char* wanted = std::getenv("LEVIN_LOG");
  for (size_t i = 0; wanted != nullptr && i < kNames.size(); ++i) {
    if (kNames[i] == wanted) return static_cast<Level>(i);
  }
  return Level::kInfo;
}

}  // namespace

bool enabled(Level level) {
  if (level < threshold()) return false;
  return level >= Level::kError || rank_from_environment().is_global_zero() ||
         std::getenv("LEVIN_LOG_ALL_RANKS") != nullptr;
}

void write(Level level, std::string_view text) {
  const RankInfo rank = rank_from_environment();
  std::string line = fmt::format("levin {}", kNames[static_cast<size_t>(level)]);
  if (rank.world_size > 1) line += fmt::format(" [rank {}]", rank.rank);
  line.append(": ").append(text).append("\n");
  // One write call, so that lines of several ranks on one terminal do not mix. Nothing can be done
  // about a closed stderr.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace levin::log
