#include "levin/base/log.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "levin/base/console/terminal_line.h"
#include "levin/base/options.h"
#include "levin/base/rank.h"

namespace levin::log {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

struct SinkPlace {
  std::mutex mutex;
  std::shared_ptr<const Sink> sink;
};

// Never destroyed: threads may log while the program ends.
SinkPlace& sink_place() {
  static auto* place = new SinkPlace;
  return *place;
}

std::shared_ptr<const Sink> current_sink() {
  SinkPlace& place = sink_place();
  const std::lock_guard lock(place.mutex);
  return place.sink;
}

}  // namespace

Level threshold() {
  const char* wanted = std::getenv("LEVIN_LOG");
  for (size_t i = 0; wanted != nullptr && i < kNames.size(); ++i) {
    if (kNames[i] == wanted) return static_cast<Level>(i);
  }
  return Level::kInfo;
}

bool enabled(Level level) {
  if (level < threshold()) return false;
  return level >= Level::kError || rank_from_environment().is_global_zero() ||
         std::getenv("LEVIN_LOG_ALL_RANKS") != nullptr;
}

std::string line_of(Level level, std::string_view text) {
  const RankInfo rank = rank_from_environment();
  std::string line = fmt::format("levin {}", kNames[static_cast<size_t>(level)]);
  if (rank.world_size > 1) line += fmt::format(" [rank {}]", rank.rank);
  return line.append(": ").append(printable_lines(text)).append("\n");
}

Sink set_sink(Sink sink) {
  SinkPlace& place = sink_place();
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(place.mutex);
  place.sink.swap(next);
  return next == nullptr ? Sink() : *next;
}

void write(Level level, std::string_view text) {
  detail::TerminalLine& terminal = detail::TerminalLine::of_stderr();
  if (const auto sink = current_sink()) {
    terminal.wipe();  // it may write there too
    return (*sink)(level, text);
  }
  terminal.print(line_of(level, text));
}

}  // namespace levin::log
