#include "levin/observe/loggers/mlflow_sender.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

#include "levin/base/log.h"
#include "levin/files/folder.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;
constexpr auto kPatience = std::chrono::seconds(10);
constexpr int64_t kFirstPauseMs = 500, kLongestPauseMs = 30'000;

/// Signals are for the program's own threads.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_ = {};
};

}  // namespace

MlflowSender::MlflowSender(MlflowOptions options, std::string run_id, std::string local)
    : options_(options),
      wanted_run_(std::move(run_id)),
      local_(std::move(local)),
      server_(std::move(options), stops_) {
  const NoSignals guard;
  thread_ = std::thread([this] { run(); });
}

MlflowSender::~MlflowSender() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MlflowSender::metrics(std::vector<MlflowMetric> row) { add({.metrics = std::move(row)}); }

void MlflowSender::params(std::map<std::string, std::string> params) {
  add({.send = [this, params = std::move(params)](MlflowServer& server) {
    return send_params(server, params);
  }});
}

void MlflowSender::tag(std::string key, std::string value) {
  add({.send = [key = std::move(key), value = std::move(value)](MlflowServer& server) {
    return server.set_tag(key, value);
  }});
}

void MlflowSender::status(std::string status) {
  add({.send = [status = std::move(status)](MlflowServer& server) {
    return server.set_status(status);
  }});
}

void MlflowSender::artifacts(fs::path folder) {
  add({.send = [this, folder = std::move(folder)](MlflowServer& server) {
    return send_folder(server, folder);
  }});
}

void MlflowSender::add(Item item) {
  bool overflows = false;
  {
    const std::lock_guard lock(mutex_);
    if (item.metrics.empty() && !item.send) return;
    if (!item.metrics.empty() && rows_ == kMostRows) {
      const auto waiting = items_.begin() + static_cast<int64_t>(in_flight_);
      const auto oldest =
          std::find_if(waiting, items_.end(), [](const Item& i) { return !i.metrics.empty(); });
      if (oldest == items_.end()) return;
      items_.erase(oldest);
      --rows_;
      overflows = !std::exchange(said_overflow_, true);
    }
    rows_ += item.metrics.empty() ? 0 : 1;
    items_.push_back(std::move(item));
  }
  changed_.notify_all();
  if (overflows) {
    log::warn("mlflow: {} rows wait for {}, so the oldest are not sent; {} has them", kMostRows,
              options_.tracking_uri, local_);
  }
}

void MlflowSender::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || !items_.empty(); });
    if (stops_) return;
    lock.unlock();
    size_t sent = 0;
    try {
      sent = send_some();
    } catch (const std::exception& error) {  // out of memory, and the like
      say_refused(error.what());
      sent = 1;
    }
    if (sent > 0) {
      done(sent);
    } else {
      pause();
    }
    lock.lock();
  }
}

bool MlflowSender::begin() {
  if (!server_.run_id().empty()) return true;
  const MlflowResult result = server_.begin(wanted_run_);
  if (result.kind == Kind::kNoReply) say_unsent(result.why);
  if (result.kind == Kind::kRefused) {
    closed_ = true;
    log::warn("mlflow: {} refuses this run ({}), so nothing is sent; {} has the values",
              options_.tracking_uri, result.why, local_);
  }
  if (result.kind != Kind::kDone) return false;
  const std::lock_guard lock(mutex_);
  run_id_ = server_.run_id();
  return true;
}

size_t MlflowSender::send_some() {
  if (!closed_ && !begin() && !closed_) return 0;
  std::vector<MlflowMetric> metrics;
  std::function<MlflowResult(MlflowServer&)> send;
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return items_.size();
    if (items_.empty()) return 0;
    for (const Item& item : items_) {
      const bool fits = metrics.size() + item.metrics.size() <= MlflowServer::kMostMetrics;
      if (item.send || (count > 0 && !fits)) break;
      metrics.insert(metrics.end(), item.metrics.begin(), item.metrics.end());
      ++count;
    }
    if (count == 0) send = items_.front().send;
    in_flight_ = std::max<size_t>(count, 1);
  }
  MlflowResult result;
  if (send) {
    count = 1;
    result = send(server_);
  } else {
    for (size_t at = 0; at < metrics.size() && result.kind == Kind::kDone;
         at += MlflowServer::kMostMetrics) {
      const auto first = metrics.begin() + static_cast<int64_t>(at);
      const auto last = metrics.begin() + static_cast<int64_t>(std::min(
                                              at + MlflowServer::kMostMetrics, metrics.size()));
      result = server_.log_metrics({first, last});
    }
  }
  if (result.kind == Kind::kNoReply) {
    say_unsent(result.why);
    return 0;
  }
  if (result.kind == Kind::kRefused) say_refused(result.why);
  if (std::exchange(said_unsent_, false))
    log::info("mlflow: {} answers again", options_.tracking_uri);
  pause_ms_ = 0;
  return count;
}

void MlflowSender::done(size_t count) {
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count && !items_.empty(); ++i) {
      rows_ -= items_.front().metrics.empty() ? 0 : 1;
      items_.pop_front();
    }
    gave_up_ = false;
    in_flight_ = 0;
  }
  changed_.notify_all();
}

void MlflowSender::pause() {
  pause_ms_ = std::clamp(pause_ms_ * 2, kFirstPauseMs, kLongestPauseMs);
  std::unique_lock lock(mutex_);
  in_flight_ = 0;
  changed_.wait_for(lock, std::chrono::milliseconds(pause_ms_), [&] { return stops_.load(); });
}

void MlflowSender::wait() {
  std::unique_lock lock(mutex_);
  const auto patience = gave_up_ ? std::chrono::seconds(0) : kPatience;
  if (changed_.wait_for(lock, patience, [&] { return items_.empty(); })) return;
  if (std::exchange(gave_up_, true)) return;
  log::warn("mlflow: {} did not take the last {} messages of this run in time; {} has the values",
            options_.tracking_uri, items_.size(), local_);
}

std::string MlflowSender::run_id() const {
  const std::lock_guard lock(mutex_);
  return run_id_;
}

void MlflowSender::say_unsent(const std::string& why) {
  if (stops_ || std::exchange(said_unsent_, true)) return;
  log::warn(
      "mlflow: {} cannot be reached ({}); training goes on, the logger tries again, and {} has "
      "the values",
      options_.tracking_uri, why, local_);
}

void MlflowSender::say_refused(const std::string& why) {
  if (std::exchange(said_refused_, true)) return;
  log::warn("mlflow: {} refused values of this run ({}); {} has them", options_.tracking_uri, why,
            local_);
}

// A run that continues may have other parameters, and MLflow keeps the first value of each.
MlflowResult MlflowSender::send_params(MlflowServer& server,
                                       const std::map<std::string, std::string>& params) {
  std::map<std::string, std::string> part;
  size_t seen = 0;
  for (const auto& [key, value] : params) {
    part[mlflow_name(key)] = value;
    ++seen;
    if (part.size() < MlflowServer::kMostParams && seen < params.size()) continue;
    MlflowResult result = server.log_params(part);
    if (result.kind == Kind::kNoReply) return result;
    if (result.kind == Kind::kRefused) {
      for (const auto& one : part) {
        result = server.log_params({one});
        if (result.kind == Kind::kNoReply) return result;
        if (result.kind == Kind::kRefused) say_refused(result.why);
      }
    }
    part.clear();
  }
  return {};
}

MlflowResult MlflowSender::send_folder(MlflowServer& server, const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    if (at->is_regular_file(error)) files.push_back(at->path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const std::string path = (folder.filename() / file.lexically_relative(folder)).generic_string();
    MlflowResult result = server.upload(file, path);
    if (result.kind == Kind::kDone) continue;
    // A checkpoint that was replaced meanwhile.
    if (!fs::exists(file, error)) return {};
    return result;
  }
  return {};
}

}  // namespace levin::detail
