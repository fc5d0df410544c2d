#include "levin/comm/collectives/announcement.h"

#include <functional>
#include <string>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/chunks.h"

namespace levin::comm {
namespace {

thread_local int64_t label_now = 0;

void put(char* text, size_t size, std::string_view value) { value.copy(text, size - 1); }

}  // namespace

LabelScope::LabelScope(int64_t label) : outer_(std::exchange(label_now, label)) {}
LabelScope::~LabelScope() { label_now = outer_; }
int64_t current_label() { return label_now; }

std::string Announcement::text() const {
  if (type[0] == 0) return name;
  return fmt::format("{} of {} x {}{}{}{}", name, count, type,
                     parts[0] == 0 ? "" : fmt::format(" in parts of {}", parts),
                     argument == 0 ? "" : fmt::format(" ({})", argument),
                     label == 0 ? "" : fmt::format(" for number {}", label));
}

bool Announcement::operator==(const Announcement& other) const {
  return std::string_view(name) == other.name && std::string_view(type) == other.type &&
         std::string_view(parts) == other.parts && count == other.count &&
         argument == other.argument && label == other.label;
}

Announcement announce(std::string_view name, std::string_view type, int64_t count, int64_t argument,
                      int64_t place) {
  Announcement announcement;
  put(announcement.name, sizeof(announcement.name), name);
  put(announcement.type, sizeof(announcement.type), type);
  announcement.count = count;
  announcement.argument = argument;
  announcement.label = label_now;
  announcement.place = place;
  return announcement;
}

Announcement announce_parts(std::string_view name, std::string_view type,
                            std::span<const int64_t> counts, int64_t argument, int64_t place) {
  if (are_equal(counts)) return announce(name, type, counts.front(), argument, place);
  Announcement announcement = announce(name, type, sum_of(counts), argument, place);
  std::string text = to_text(std::vector<int64_t>(counts.begin(), counts.end()));
  if (text.size() >= sizeof(announcement.parts)) {  // a hash stands for the rest
    const auto hash = static_cast<uint32_t>(std::hash<std::string>()(text));
    text = text.substr(0, sizeof(announcement.parts) - 16) + fmt::format("... #{:08x}", hash);
  }
  put(announcement.parts, sizeof(announcement.parts), text);
  return announcement;
}

void check_same(const Announcement& mine, int64_t rank, const Announcement& theirs,
                int64_t their_rank, int64_t number) {
  LEVIN_CHECK(theirs == mine, "comm.mismatch",
              "collective {}: rank {} called {} and rank {} called {}; all ranks must "
              "call the same collectives in the same order, with tensors of the same size",
              number, their_rank, theirs.text(), rank, mine.text());
}

void check_message(const Announcement& sent, int64_t from, const Announcement& expected,
                   int64_t to) {
  LEVIN_CHECK(sent == expected, "comm.mismatch",
              "rank {} sent {} x {} with tag {} and rank {} expects {} x {} with tag {}; call send "
              "and recv in the same order on both ranks",
              from, sent.count, sent.type, sent.argument, to, expected.count, expected.type,
              expected.argument);
}

}  // namespace levin::comm
