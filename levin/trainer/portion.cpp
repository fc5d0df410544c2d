#include <iterator>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/trainer/options.h"
#include "levin/trainer/run/limits.h"

namespace levin {

int64_t Portion::of(int64_t total) const {
  if (!is_fraction_) return std::min(count_, total);
  return static_cast<int64_t>(fraction_ * static_cast<double>(total));
}

bool Portion::valid() const {
  return is_fraction_ ? fraction_ >= 0.0 && fraction_ <= 1.0 : count_ >= 0;
}

std::string to_text(const Portion& portion) {
  if (!portion.is_fraction_) return to_text(portion.count_);
  const std::string text = to_text(portion.fraction_);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

void from_text(std::string_view text, Portion& portion) {
  if (text.find_first_of(".e") != std::string_view::npos) {
    double fraction = 0.0;
    from_text(text, fraction);
    portion = Portion(fraction);
  } else {
    int64_t count = 0;
    from_text(text, count);
    portion = Portion(count);
  }
}

std::optional<double> CheckInterval::seconds() const { return detail::parse_duration(time_); }

std::string to_text(const CheckInterval& interval) {
  return interval.time_.empty() ? to_text(static_cast<const Portion&>(interval)) : interval.time_;
}

void from_text(std::string_view text, CheckInterval& interval) {
  if (text.find(':') == std::string_view::npos) {
    interval.time_.clear();
    return from_text(text, static_cast<Portion&>(interval));
  }
  detail::parse_duration(std::string(text), "val_check_interval");
  interval = CheckInterval(1.0);
  interval.time_ = text;
}

int64_t EpochCounts::at(int64_t epoch, int64_t otherwise) const {
  const auto next = counts_.upper_bound(epoch);
  return next == counts_.begin() ? otherwise : std::prev(next)->second;
}

std::string to_text(const EpochCounts& counts) {
  std::string text;
  for (const auto& [epoch, count] : counts.counts_) {
    text += (text.empty() ? "" : ",") + to_text(epoch) + ":" + to_text(count);
  }
  return text.empty() ? "none" : text;
}

void from_text(std::string_view text, EpochCounts& counts) {
  counts.counts_.clear();
  if (text == "none") return;
  LEVIN_CHECK(!text.empty(), "base.text", "got '', wanted epochs with counts, such as 0:8,4:1");
  std::vector<std::string> items;
  from_text(text, items);
  for (const std::string& item : items) {
    const size_t colon = item.find(':');
    LEVIN_CHECK(colon != std::string::npos, "base.text",
                "got '{}', wanted epochs with counts, such as 0:8,4:1", printable(text));
    int64_t epoch = 0, count = 0;
    from_text(std::string_view(item).substr(0, colon), epoch);
    from_text(std::string_view(item).substr(colon + 1), count);
    LEVIN_CHECK(counts.counts_.emplace(epoch, count).second, "base.text",
                "got '{}', which has epoch {} twice", printable(text), epoch);
  }
}

std::string to_text(const CountOrAuto& count) {
  return count.is_auto_ ? "auto" : to_text(count.count_);
}

void from_text(std::string_view text, CountOrAuto& count) {
  count.is_auto_ = text == "auto";
  if (!count.is_auto_) from_text(text, count.count_);
}

}  // namespace levin
