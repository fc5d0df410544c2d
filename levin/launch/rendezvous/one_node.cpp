#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "levin/base/log.h"
#include "levin/base/posix.h"
#include "levin/comm/environment/token.h"
#include "levin/launch/rendezvous/rendezvous.h"
#include "levin/launch/rendezvous/shared_store.h"

namespace levin::launch {
namespace {

/// In memory and without a name, so that nothing is left of it; where ranks find it the kernel opens it
/// for processes of this user alone.
posix::Descriptor make_store_file(std::string& place) {
  posix::Descriptor file(::memfd_create("levin-store", MFD_CLOEXEC));
  place = fmt::format("/proc/{}/fd/{}", ::getpid(), file.number());
  // A /proc of other processes, as a container may have it, leads to another file or to none.
  const posix::Descriptor found = posix::open_file(place, O_RDWR);
  struct stat made{}, there{};
  if (file && found && ::fstat(file.number(), &made) == 0 && ::fstat(found.number(), &there) == 0 &&
      made.st_ino == there.st_ino && made.st_dev == there.st_dev) {
    return file;
  }
  log::warn(
      "the ranks cannot open this launcher's file through {}, so they connect over 127.0.0.1, "
      "where every user of this machine can read and change their data; mount /proc",
      place);
  place.clear();
  return {};
}

class OneNode final : public Rendezvous {
 public:
  OneNode(const LaunchOptions& options, int64_t port)
      : restarts_left_(options.max_restarts),
        store_(SharedStore::serve(comm::listen_on(port, "--master-port", comm::Reach::kLoopback),
                                  options.token)) {
    plan_.max_restarts = options.max_restarts;
    plan_.world_size = plan_.local_world_size = options.nproc_per_node;
    plan_.master_address = "127.0.0.1";
    plan_.master_port = store_.port();
    if (plan_.world_size > 1) store_file_ = make_store_file(plan_.store_file);
    plan_.token = options.token.empty() ? comm::new_token() : options.token;
    plan_.run_id = options.rdzv_id.empty() ? fmt::format("levin-{}-{}", ::getpid(), store_.port())
                                           : options.rdzv_id;
  }

  Step next(Signals& signals) override {
    if (!outcome_) return {.plan = plan_};
    if (outcome_->kind == Outcome::Kind::kSignalled) return {.exit_code = 128 + outcome_->signal};
    if (!outcome_->failure) return {};
    const RankFailure& failure = *outcome_->failure;
    const int code = exit_code_of(failure);
    log::error("{}", describe(failure));
    if (restarts_left_ == 0 || !failure.worth_a_restart) return {.exit_code = code};
    if (const auto number = signals.take()) return {.exit_code = 128 + *number};
    --restarts_left_;
    ++plan_.attempt;
    log::warn("restarting all ranks, restart {} of {}", plan_.attempt, plan_.max_restarts);
    return {.plan = plan_};
  }

  RankGroup::Events events() override { return {}; }
  void settle(const Outcome& outcome) override { outcome_ = outcome; }

 private:
  int64_t restarts_left_;
  SharedStore store_;
  posix::Descriptor store_file_;
  Plan plan_;
  std::optional<Outcome> outcome_;
};

}  // namespace

Rendezvous::~Rendezvous() = default;

std::unique_ptr<Rendezvous> rendezvous_of_one_node(const LaunchOptions& options) {
  const int64_t port = options.rdzv_endpoint.empty()
                           ? options.master_port.value_or(0)
                           : parse_endpoint(options.rdzv_endpoint, 0).port;
  return std::make_unique<OneNode>(options, port);
}

}  // namespace levin::launch
