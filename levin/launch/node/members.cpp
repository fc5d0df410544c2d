#include "levin/launch/node/members.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "levin/base/check.h"
#include "levin/launch/node/binding.h"

namespace levin::launch {
namespace {

constexpr size_t kNumLastLines = 20;

bool shown(const LaunchOptions& options, int64_t local_rank) {
  const auto& filter = options.local_ranks_filter;
  return filter.empty() || std::ranges::find(filter, local_rank) != filter.end();
}

int64_t num_shown(const LaunchOptions& options, int64_t num_ranks) {
  int64_t count = 0;
  for (int64_t rank = 0; rank < num_ranks; ++rank) count += shown(options, rank) ? 1 : 0;
  return count;
}

bool is_file(int number) {
  struct stat status = {};
  return ::fstat(number, &status) == 0 && S_ISREG(status.st_mode);
}

struct Wish {
  bool file = false;
  bool console = false;
};

// --log-dir alone asks for both.
Wish wish_for(bool redirected, bool teed, const LaunchOptions& options, bool is_shown) {
  const bool neither = options.redirects == "0" && options.tee == "0";
  const bool file = !options.log_dir.empty() && (redirected || teed || neither);
  return {file, is_shown && !(redirected && !teed)};
}

RankStream::Options stream_of(const Wish& wish, int console, const std::string& prefix,
                              const std::filesystem::path& file) {
  RankStream::Options stream;
  if (wish.console) stream.console = console;
  if (wish.file) stream.file = file;
  stream.prefix = prefix;
  return stream;
}

}  // namespace

std::vector<Member> members_of(const Plan& plan, const LaunchOptions& options,
                               const std::string& program) {
  const bool many = plan.num_nodes > 1 || num_shown(options, plan.local_world_size) > 1;
  const auto attempt = std::filesystem::path(options.log_dir) / plan.run_id /
                       fmt::format("attempt_{}", plan.attempt);
  std::vector<Member> members;
  for (int64_t local = 0; local < plan.local_world_size; ++local) {
    Member member;
    member.rank = plan.first_rank + local;
    member.process = {.command = options.command,
                      .program = program,
                      .variables = rank_variables(plan, local),
                      .cpus = cpus_for(options.numa_binding, local, plan.local_world_size)};
    const Streams redirected = parse_streams(options.redirects, local);
    const Streams teed = parse_streams(options.tee, local);
    const bool is_shown = shown(options, local);
    const Wish out = wish_for(redirected.out, teed.out, options, is_shown);
    const Wish err = wish_for(redirected.err, teed.err, options, is_shown);
    const auto folder = attempt / std::to_string(member.rank);
    const bool plain = !many || (options.first_rank_plain && member.rank == 0);
    const std::string prefix = plain ? "" : fmt::format("[rank {}] ", member.rank);
    const bool as_it_comes = plain && out.console && !out.file;
    // A file is never held up: the rank writes there itself.
    if (!as_it_comes || !is_file(STDOUT_FILENO)) {
      member.output = stream_of(out, STDOUT_FILENO, prefix, folder / "stdout.log");
      member.output->as_it_comes = as_it_comes;
    }
    member.error = stream_of(err, STDERR_FILENO, prefix, folder / "stderr.log");
    member.error.num_last_lines = kNumLastLines;
    member.error.as_it_comes = as_it_comes;
    members.push_back(std::move(member));
  }
  return members;
}

}  // namespace levin::launch
