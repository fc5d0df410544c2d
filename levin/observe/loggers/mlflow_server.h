#pragma once
// The REST API of an MLflow server, as mlflow.tracking.MlflowClient calls it. Not for users.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "levin/observe/logger.h"
#include "levin/observe/loggers/http.h"

namespace levin::detail {

/// A value at a step, with the milliseconds since 1970 at which it was logged.
struct MlflowMetric {
  std::string key;
  double value = 0;
  int64_t step = 0;
  int64_t time_ms = 0;
};

/// The outcome of a call.
struct MlflowResult {
  enum class Kind {
    kDone,     ///< the server did it
    kNoReply,  ///< no answer, or a server that is busy: worth another try
    kRefused   ///< the server says why not
  };
  Kind kind = Kind::kDone;
  std::string why = {};
  bool is_missing = false;  ///< what was asked for does not exist
};

/// A name that MLflow accepts for a metric, parameter or tag; other characters are "_".
std::string mlflow_name(const std::string& name);

/// Used by one thread at a time.
class MlflowServer {
 public:
  static constexpr size_t kMostMetrics = 1000, kMostParams = 100;  ///< of one call
  static constexpr size_t kLongestValue = 500;                     ///< bytes of a parameter

  /// Throws Error "observe.logger.http" where libcurl is not installed.
  MlflowServer(MlflowOptions options, const std::atomic<bool>& is_stopped);

  /// Makes the experiment and the run, or continues the run of that id.
  MlflowResult begin(const std::string& run_id);
  const std::string& run_id() const { return run_id_; }

  MlflowResult log_metrics(const std::vector<MlflowMetric>& metrics);
  MlflowResult log_params(const std::map<std::string, std::string>& params);
  MlflowResult set_tag(const std::string& key, const std::string& value);
  /// Status "RUNNING", "FINISHED", "FAILED" or "KILLED".
  MlflowResult set_status(const std::string& status);
  /// Uploads a file as an artifact of that path.
  MlflowResult upload(const std::filesystem::path& file, const std::string& path);

 private:
  MlflowResult call(const std::string& method, const std::string& path, const std::string& body,
                    std::string* reply = nullptr);
  MlflowResult find_experiment(std::string& id);
  MlflowResult take_run(const std::string& reply);

  MlflowOptions options_;
  const std::atomic<bool>& is_stopped_;
  Http http_;
  std::string run_id_;
  std::string artifact_uri_;
};

}  // namespace levin::detail
