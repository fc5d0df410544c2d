#pragma once
// MlflowSender: a thread that brings what was logged to an MLflow server. Not for users.

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "levin/observe/loggers/mlflow_server.h"

namespace levin::detail {

class MlflowSender {
 public:
  static constexpr size_t kMostRows = 10'000;  ///< rows that wait

  /// local names the file that keeps the rows, for warnings. Throws Error "observe.logger.http".
  MlflowSender(MlflowOptions options, std::string run_id, std::string local);
  /// Ends the request under way; what waits is lost.
  ~MlflowSender();
  MlflowSender(const MlflowSender&) = delete;
  MlflowSender& operator=(const MlflowSender&) = delete;

  void metrics(std::vector<MlflowMetric> row);
  void params(std::map<std::string, std::string> params);
  void tag(std::string key, std::string value);
  void status(std::string status);
  /// Uploads the files below a folder to the artifact path of its name.
  void artifacts(std::filesystem::path folder);

  /// Waits until all is sent; a warning after 10 s, and at once after that.
  void wait();
  /// Empty as long as the server has not named the run.
  std::string run_id() const;

 private:
  /// Something to send. It is repeated until the server takes or refuses it.
  struct Item {
    std::vector<MlflowMetric> metrics = {};
    std::function<MlflowResult(MlflowServer&)> send = {};
  };
  using Kind = MlflowResult::Kind;

  void add(Item item);
  void run();
  bool begin();
  /// Sends the oldest items; how many those were, 0 for another try later.
  size_t send_some();
  void done(size_t count);
  void pause();
  void say_unsent(const std::string& why);
  void say_refused(const std::string& why);
  MlflowResult send_params(MlflowServer& server, const std::map<std::string, std::string>& params);
  MlflowResult send_folder(MlflowServer& server, const std::filesystem::path& folder);

  MlflowOptions options_;
  std::string wanted_run_;
  std::string local_;
  std::atomic<bool> stops_ = false;
  MlflowServer server_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  size_t rows_ = 0;
  size_t in_flight_ = 0;  // of the oldest items, which the thread sends now
  std::string run_id_;
  bool gave_up_ = false;  // the last wait() was in vain

  // The thread's own.
  bool closed_ = false;  // the server refuses the run
  bool said_unsent_ = false;
  bool said_refused_ = false;
  int64_t pause_ms_ = 0;
  bool said_overflow_ = false;

  std::thread thread_;
};

}  // namespace levin::detail
