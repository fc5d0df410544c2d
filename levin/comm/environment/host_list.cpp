#include "levin/comm/environment/host_list.h"

#include <charconv>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin::comm {
namespace {

// Short texts stand for many hosts, and brackets behind each other multiply.
constexpr size_t kMostHosts = 1 << 16;
constexpr size_t kMostBrackets = 16;  // in a name
constexpr size_t kLongestName = 255;

std::string shown(std::string_view list) {
  constexpr size_t kShown = 200;
  return printable(list.substr(0, kShown)) + (list.size() > kShown ? "..." : "");
}

void check_count(size_t count, std::string_view list) {
  LEVIN_CHECK(count <= kMostHosts, "comm.environment.hosts",
              "'{}' expands to more than {} hosts; shorten its ranges", shown(list), kMostHosts);
}

int64_t number_in(std::string_view digits, std::string_view list) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  LEVIN_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= 0,
              "comm.environment.hosts", "'{}' in '{}' is not a number; write hosts like n[1-3,7],m",
              shown(digits), shown(list));
  return value;
}

// At the commas outside brackets.
std::vector<std::string_view> split_items(std::string_view list) {
  std::vector<std::string_view> items;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      items.push_back(list.substr(start, i - start));
      start = i + 1;
    }
  }
  return items;
}

// "08-10" of "n[08-10]": 08, 09, 10.
template <class Visit>
void expand_range(std::string_view range, std::string_view list, const Visit& visit) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const std::string_view last = dash == std::string_view::npos ? first : range.substr(dash + 1);
  const int64_t begin = number_in(first, list);
  const int64_t end = number_in(last, list);
  LEVIN_CHECK(first.size() <= kLongestName, "comm.environment.hosts",
              "range {} in '{}' has a number that is too long; shorten it", shown(range),
              shown(list));
  LEVIN_CHECK(begin <= end, "comm.environment.hosts",
              "range {} in '{}' does not increase; write the smaller number first", shown(range),
              shown(list));
  check_count(static_cast<size_t>(end - begin), list);
  for (int64_t i = begin; i <= end; ++i) visit(fmt::format("{:0{}}", i, first.size()));
}

void expand_item(const std::string& before, std::string_view rest, std::string_view list,
                 std::vector<std::string>& hosts, size_t brackets = 0) {
  const size_t open = rest.find('[');
  if (open == std::string_view::npos) {
    const std::string host = before + std::string(rest);
    const bool is_name =
        !host.empty() && host.size() <= kLongestName && rest.find(']') == std::string_view::npos;
    LEVIN_CHECK(is_name, "comm.environment.hosts",
                "cannot read the list of hosts '{}'; write hosts like n[1-3,7],m", shown(list));
    hosts.push_back(host);
    check_count(hosts.size(), list);
    return;
  }
  const size_t close = rest.find(']', open);
  LEVIN_CHECK(close != std::string_view::npos, "comm.environment.hosts",
              "a bracket in '{}' is not closed", shown(list));
  LEVIN_CHECK(brackets < kMostBrackets, "comm.environment.hosts",
              "a name in '{}' has more than {} brackets", shown(list), kMostBrackets);
  const std::string start = before + std::string(rest.substr(0, open));
  for (const std::string_view range : split_items(rest.substr(open + 1, close - open - 1))) {
    expand_range(range, list, [&](const std::string& number) {
      expand_item(start + number, rest.substr(close + 1), list, hosts, brackets + 1);
    });
  }
}

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view item : split_items(list)) expand_item("", item, list, hosts);
  return hosts;
}

std::vector<int64_t> expand_counts(std::string_view list) {
  std::vector<int64_t> counts;
  for (const std::string_view item : split_items(list)) {
    const size_t times = item.find("(x");
    int64_t repeat = 1;
    if (times != std::string_view::npos) {
      LEVIN_CHECK(item.ends_with(')'), "comm.environment.hosts",
                  "'{}' is not a list of counts; write counts like 2(x3),1", shown(list));
      repeat = number_in(item.substr(times + 2, item.size() - times - 3), list);
    }
    check_count(counts.size() + static_cast<size_t>(repeat), list);
    counts.insert(counts.end(), static_cast<size_t>(repeat),
                  number_in(item.substr(0, times), list));
  }
  return counts;
}

}  // namespace levin::comm
