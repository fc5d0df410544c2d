#include "levin/comm/environment/variables.h"

#include <unistd.h>

#include <charconv>

#include "levin/base/check.h"

namespace levin::comm {

Variables Variables::of_this_process() {
  std::map<std::string, std::string> values;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos) {
      values.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return Variables(std::move(values));
}

bool Variables::has(const std::string& name) const {
  const auto found = values_.find(name);
  return found != values_.end() && !found->second.empty();
}

std::string Variables::text_or(const std::string& name, const std::string& otherwise) const {
  return has(name) ? values_.at(name) : otherwise;
}

const std::string& Variables::text(const std::string& name, const std::string& because_of) const {
  LEVIN_CHECK(has(name), "comm.environment.missing",
              "{} is set but {} is not; set both, or neither for a run of one process", because_of,
              name);
  return values_.at(name);
}

std::optional<int64_t> Variables::number_if_set(const std::string& name, Range range) const {
  if (!has(name)) return std::nullopt;
  const std::string& held = values_.at(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(held.data(), held.data() + held.size(), value);
  const bool whole = error == std::errc() && end == held.data() + held.size();
  const bool bounded = range.most != std::numeric_limits<int64_t>::max();
  LEVIN_CHECK(whole && value >= range.least && value <= range.most, "comm.environment.number",
              "{} holds '{}', wanted an integer {} {}{}", name, held,
              bounded ? "from" : "of at least", range.least,
              bounded ? fmt::format(" to {}", range.most) : "");
  return value;
}

int64_t Variables::number_or(const std::string& name, Range range, int64_t otherwise) const {
  return number_if_set(name, range).value_or(otherwise);
}

int64_t Variables::number(const std::string& name, Range range,
                          const std::string& because_of) const {
  static_cast<void>(text(name, because_of));
  return *number_if_set(name, range);
}

}  // namespace levin::comm
