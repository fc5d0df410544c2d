#include "levin/launch/command_line.h"

#include "levin/base/text.h"

namespace levin::launch {

std::vector<std::string> flags_of(const LaunchOptions& options) {
  const LaunchOptions defaults;
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, const auto& value, const auto& otherwise) {
    if (value == otherwise) return;
    flags.emplace_back(flag);
    flags.push_back(to_text(value));
  };
  add("--max-restarts", options.max_restarts, defaults.max_restarts);
  add("--monitor-interval", options.monitor_interval_s, defaults.monitor_interval_s);
  add("--log-dir", options.log_dir, defaults.log_dir);
  add("--redirects", options.redirects, defaults.redirects);
  add("--tee", options.tee, defaults.tee);
  add("--local-ranks-filter", options.local_ranks_filter, defaults.local_ranks_filter);
  add("--numa-binding", options.numa_binding, defaults.numa_binding);
  add("--shutdown-timeout", options.shutdown_timeout_s, defaults.shutdown_timeout_s);
  add("--failure-timeout", options.failure_timeout_s, defaults.failure_timeout_s);
  const std::string conf = "join_timeout=" + to_text(options.join_timeout_s) +
                           ",last_call_timeout=" + to_text(options.last_call_timeout_s) +
                           ",node_timeout=" + to_text(options.node_timeout_s);
  const bool timeouts = options.join_timeout_s != defaults.join_timeout_s ||
                        options.last_call_timeout_s != defaults.last_call_timeout_s ||
                        options.node_timeout_s != defaults.node_timeout_s;
  add("--rdzv-conf", timeouts ? conf : std::string(), std::string());
  return flags;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace levin::launch
