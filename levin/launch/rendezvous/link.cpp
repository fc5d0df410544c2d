#include "levin/launch/rendezvous/link.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "levin/base/awake.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/comm/environment/kubeflow.h"
#include "levin/comm/reach.h"
#include "levin/launch/options.h"
#include "levin/launch/rendezvous/leader.h"
#include "levin/launch/rendezvous/shared_store.h"

namespace levin::launch {

/// The meeting point of several nodes' launchers: one of them serves the store, the others connect.
struct MeetingPoint {
  Endpoint endpoint;  ///< the port is the one that is served
  SharedStore store;
  bool served_here = false;
};

namespace {

using std::chrono::steady_clock;

// torchrun's.
constexpr int64_t kEndpointPort = 29400;
constexpr int64_t kMasterPort = 29500;
constexpr std::chrono::milliseconds kRetryPause(100);
constexpr std::chrono::seconds kAnswerTimeout(10);

Endpoint endpoint_of(const LaunchOptions& options) {
  if (!options.rdzv_endpoint.empty()) return parse_endpoint(options.rdzv_endpoint, kEndpointPort);
  return {options.master_addr, options.master_port.value_or(kMasterPort)};
}

// Nothing when another launcher on this host was first.
std::optional<SharedStore> try_to_serve(const Endpoint& endpoint, const std::string& token,
                                        bool must) {
  try {
    return SharedStore::serve(
        comm::listen_on(
            endpoint.port, must ? "--master-port" : "--rdzv-endpoint",
            endpoint.host == "127.0.0.1" ? comm::Reach::kLoopback : comm::Reach::kNetwork),
        token);
  } catch (const Error& error) {
    if (must || error.id() != "comm.environment.port") throw;
    return std::nullopt;
  }
}

/// Node rank 0 serves; without node ranks the first launcher on the host that the endpoint names.
/// The others wait until somebody serves, or until leave is set. Throws Error
/// "comm.environment.port" when the port is taken, "comm.environment.name" when the host's name
/// does not resolve in time, "launch.rendezvous" when nobody serves in time and "launch.loopback".
MeetingPoint meet(const LaunchOptions& options, const std::atomic<bool>& leave) {
  Endpoint endpoint = endpoint_of(options);
  const std::chrono::duration<double> timeout(options.timeouts.join_s);
  const auto deadline =
      steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(timeout);
  comm::wait_for_name(endpoint.host,
                      std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  const bool numbered = options.node_rank.has_value();
  if (numbered ? *options.node_rank == 0 : comm::is_this_host(endpoint.host)) {
    if (auto store = try_to_serve(endpoint, options.token, numbered)) {
      endpoint.port = store->port();
      return {endpoint, std::move(*store), true};
    }
  }
  for (bool told = false; !comm::somebody_listens(endpoint.host, endpoint.port); told = true) {
    if (!told) log::info("waiting for the launcher at {}:{}", endpoint.host, endpoint.port);
    LEVIN_CHECK(!leave && steady_clock::now() < deadline, "launch.rendezvous",
                "no launcher serves the rendezvous at {}:{} after {} s; start the launcher of that "
                "host, or check --rdzv-endpoint and --master-addr",
                endpoint.host, endpoint.port, options.timeouts.join_s);
    std::this_thread::sleep_for(kRetryPause);
  }
  const auto patience = std::min<std::chrono::duration<double>>(timeout, kAnswerTimeout);
  return {
      endpoint,
      SharedStore::connect(endpoint.host, endpoint.port,
                           std::chrono::ceil<std::chrono::milliseconds>(patience), options.token),
      false};
}

constexpr std::chrono::seconds kGoodbye(3);
constexpr std::chrono::duration<double> kSilencePause(0.2);

std::chrono::duration<double> pause_of(const LaunchOptions& options) {
  return std::chrono::duration<double>(options.monitor_interval_s);
}

Keys keys_of(const LaunchOptions& options) {
  return {options.rdzv_id.empty() ? "none" : options.rdzv_id, options.token};
}

}  // namespace

Link::Link(const LaunchOptions& options) : line_(std::make_shared<Line>()) {
  line_->options = options;
  line_->event = posix::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = std::thread([line = line_] { talk(line); });
  silence_ = std::thread([line = line_] { listen_for_silence(line); });
}

Link::~Link() {
  std::unique_lock lock(line_->mutex);
  line_->leave = true;
  line_->wake.notify_all();
  const bool finished = line_->wake.wait_for(lock, kGoodbye + std::chrono::seconds(1), [&] {
    return line_->finished || line_->silent;
  }) && line_->finished;
  lock.unlock();
  silence_.join();
  finished ? thread_.join() : thread_.detach();
}

Link::News Link::news() {
  eventfd_t count = 0;
  ::eventfd_read(line_->event.number(), &count);
  const std::lock_guard lock(line_->mutex);
  return line_->news;
}

void Link::ask_for(int64_t attempt) {
  const std::lock_guard lock(line_->mutex);
  line_->attempt = attempt;
  line_->news.plan.reset();
  line_->news.stop.reset();
  line_->wake.notify_all();
}

void Link::send(Message message) {
  const std::lock_guard lock(line_->mutex);
  line_->outbox.push_back(std::move(message));
  line_->wake.notify_all();
}

void Link::send_alarm(int64_t attempt, const Report& report) {
  send([=](SharedStore& store, const Keys& keys, int64_t) {
    store.set(keys.alarm(attempt), encode(report));
  });
}

void Link::send_report(int64_t attempt, const Report& report) {
  send([=](SharedStore& store, const Keys& keys, int64_t agent) {
    store.set(keys.report(attempt, agent), encode(report));
  });
}

void Link::send_leave(int signal) {
  send([=](SharedStore& store, const Keys& keys, int64_t agent) {
    store.set(keys.left(agent), std::to_string(signal));
  });
}

void Link::talk(const std::shared_ptr<Line>& line) {
  try {
    const Keys keys = keys_of(line->options);
    MeetingPoint point = meet(line->options, line->leave);
    join(*line, point, keys);
    std::optional<Leader> leader;
    if (point.served_here) leader.emplace(point.store, keys, line->options, line->news.agent);
    while (!line->leave) {
      exchange(*line, point, keys);
      if (leader && !leader->over()) leader->look();
      read_news(*line, point.store, keys);
      std::unique_lock lock(line->mutex);
      line->wake.wait_for(lock, pause_of(line->options),
                          [&] { return line->leave || !line->outbox.empty(); });
    }
    say_goodbye(*line, point, keys);
    const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
    while (leader && !leader->all_have_left() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(pause_of(line->options));
    }
  } catch (...) {
    const std::lock_guard lock(line->mutex);
    if (!line->news.error) line->news.error = std::current_exception();
  }
  const std::lock_guard lock(line->mutex);
  line->finished = true;
  notify(*line);
  line->wake.notify_all();
}

// A call of the store waits for ever where the network drops what it sends: the leader takes this
// node for lost, and this node has to find out by itself.
void Link::listen_for_silence(const std::shared_ptr<Line>& line) {
  std::unique_lock lock(line->mutex);
  const auto over = [&] { return line->leave || line->finished; };
  levin::detail::AwakeTime watch;
  const auto pause = std::min(pause_of(line->options), kSilencePause);
  while (!line->wake.wait_for(lock, pause, [&] { return over(); })) {
    watch.look();
    // Stopped, this launcher has asked nothing: a process that sleeps gets no answer.
    if (watch.slept()) line->last_answer = std::chrono::steady_clock::now();
    if (!is_silent(*line)) continue;
    line->leave = line->silent = true;
    line->news.error = std::make_exception_ptr(std::runtime_error(
        fmt::format("it did not answer for {} s", line->options.timeouts.node_s)));
    notify(*line);
    return;
  }
}

bool Link::is_silent(const Line& line) {
  if (line.news.agent < 0 || line.news.serves || line.news.end) return false;
  const std::chrono::duration<double> silence = std::chrono::steady_clock::now() - line.last_answer;
  return silence.count() > line.options.timeouts.node_s;
}

void Link::join(Line& line, MeetingPoint& point, const Keys& keys) {
  const int64_t agent = point.store.add(keys.num_agents(), 1) - 1;
  const NodeInfo info{posix::host_name(), line.options.nproc_per_node,
                      line.options.node_rank.value_or(-1),
                      comm::addresses_towards(point.endpoint.host)};
  point.store.set(keys.info(agent), encode(info));
  const std::lock_guard lock(line.mutex);
  line.news.agent = agent;
  line.last_answer = std::chrono::steady_clock::now();
  line.news.serves = point.served_here;
  line.news.endpoint = point.endpoint;
}

void Link::exchange(Line& line, MeetingPoint& point, const Keys& keys) {
  std::vector<Message> outbox;
  int64_t agent = 0;
  {
    const std::lock_guard lock(line.mutex);
    outbox.swap(line.outbox);
    agent = line.news.agent;
  }
  for (const Message& message : outbox) message(point.store, keys, agent);
  point.store.add(keys.beat(agent), 1);
  const std::lock_guard lock(line.mutex);
  line.last_answer = std::chrono::steady_clock::now();
}

void Link::read_news(Line& line, SharedStore& store, const Keys& keys) {
  int64_t attempt = 0;
  {
    const std::lock_guard lock(line.mutex);
    attempt = line.attempt;
  }
  const auto plan = store.find(keys.plan(attempt));
  const auto stop = store.find(keys.stop(attempt));
  const auto end = store.find(keys.end());
  const std::lock_guard lock(line.mutex);
  if (line.attempt != attempt) return;
  const bool is_new =
      (plan && !line.news.plan) || (stop && !line.news.stop) || (end && !line.news.end);
  if (plan) decode(*plan, line.news.plan.emplace());
  if (stop) decode(*stop, line.news.stop.emplace());
  if (end) decode(*end, line.news.end.emplace());
  if (is_new) notify(line);
}

void Link::say_goodbye(Line& line, MeetingPoint& point, const Keys& keys) {
  exchange(line, point, keys);
  const std::string key = keys.left(line.news.agent);
  if (!point.store.find(key)) point.store.set(key, "0");
}

void Link::notify(Line& line) { ::eventfd_write(line.event.number(), 1); }

}  // namespace levin::launch
