#include "levin/launch/hostfile.h"

#include <sstream>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/reading/regular_file.h"

namespace levin::launch {
namespace {

constexpr int64_t kMostSlots = 1 << 20;

Host host_in(const std::string& line, const std::string& place) {
  std::istringstream words(line);
  Host host;
  words >> host.name;
  // ssh would take one with a dash for an option.
  const bool is_name =
      !host.name.empty() && !host.name.starts_with('-') && host.name == printable(host.name);
  LEVIN_CHECK(is_name, "launch.hostfile", "{}: got '{}', wanted the name of a host", place,
              printable(host.name));
  for (std::string word; words >> word;) {
    LEVIN_CHECK(word.starts_with("slots="), "launch.hostfile", "{}: got '{}', wanted slots=NUMBER",
                place, printable(word));
    try {
      from_text(word.substr(std::string_view("slots=").size()), host.slots);
    } catch (const Error&) {
      host.slots = 0;
    }
    LEVIN_CHECK(host.slots >= 1 && host.slots <= kMostSlots, "launch.hostfile",
                "{}: got '{}', wanted slots=NUMBER", place, printable(word));
  }
  return host;
}

}  // namespace

std::vector<Host> read_hostfile(const std::filesystem::path& file) {
  std::string why;
  const auto text = posix::read_text(file, why);
  LEVIN_CHECK(text, "launch.hostfile", "cannot read the hostfile {}: {}", file.string(), why);
  std::istringstream in(*text);
  std::vector<Host> hosts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    hosts.push_back(host_in(line, fmt::format("{} line {}", file.string(), number)));
  }
  LEVIN_CHECK(!hosts.empty(), "launch.hostfile", "{} names no host; wanted lines of HOST slots=N",
              file.string());
  return hosts;
}

}  // namespace levin::launch
