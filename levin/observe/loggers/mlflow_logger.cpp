#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/observe/loggers/json_rows.h"
#include "levin/observe/loggers/mlflow_sender.h"

namespace levin {
namespace {

class MlflowLogger : public detail::JsonFolderLogger {
 public:
  MlflowLogger(std::shared_ptr<detail::RunDirectory> directory, MlflowOptions options)
      : JsonFolderLogger(std::move(directory)), options_(std::move(options)) {}

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override {
    JsonFolderLogger::log_metrics(values, epoch, step);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    std::vector<detail::MlflowMetric> row;
    for (const auto& [name, value] : values) row.push_back({full_name(name), value, step, now_ms});
    row.push_back({"epoch", static_cast<double>(epoch), step, now_ms});
    send([&](detail::MlflowSender& sender) { sender.metrics(std::move(row)); });
  }
  void log_hyperparams(const std::map<std::string, std::string>& hyperparams) override {
    JsonFolderLogger::log_hyperparams(hyperparams);
    send([&](detail::MlflowSender& sender) { sender.params(hyperparams); });
  }
  void flush() override {
    if (sender_) sender_->wait();
  }
  void after_save_checkpoint(const std::string& folder) override {
    if (options_.log_model == "all") {
      send([&](detail::MlflowSender& sender) { sender.artifacts(folder); });
    } else if (options_.log_model == "true") {
      saved_.push_back(folder);
    }
  }
  void finalize(std::string_view status) override {
    if (!sender_) return;
    std::error_code error;
    for (const std::string& folder : std::exchange(saved_, {})) {
      if (std::filesystem::exists(folder, error)) sender_->artifacts(folder);
    }
    sender_->status(status == "success" ? "FINISHED" : status == "killed" ? "KILLED" : "FAILED");
    sender_->wait();
  }
  std::string name() const override { return options_.experiment_name; }
  /// The server's id of the run, as soon as it is known.
  std::string version() const override { return sender_ ? sender_->run_id() : options_.run_id; }

  State state_dict() const override {
    State state = JsonFolderLogger::state_dict();
    return std::move(state.set("mlflow_run_id", version()));
  }
  bool resume(const State& state, int64_t step) override {
    if (!JsonFolderLogger::resume(state, step)) return false;
    if (options_.run_id.empty()) options_.run_id = state.text("mlflow_run_id");
    return true;
  }

 private:
  template <class Send>
  void send(const Send& send) {
    if (!sender_) {
      std::string local = "no file";  // where the folder cannot be made
      directory().attempt([&] { local = path(); });
      sender_ = std::make_unique<detail::MlflowSender>(options_, options_.run_id, std::move(local));
    }
    send(*sender_);
    if (options_.synchronous) sender_->wait();
  }

  MlflowOptions options_;
  std::vector<std::string> saved_;
  std::unique_ptr<detail::MlflowSender> sender_;
};

}  // namespace

std::shared_ptr<Logger> mlflow_logger(MlflowOptions options) {
  if (options.tracking_uri.empty()) {
    const char* variable = std::getenv("MLFLOW_TRACKING_URI");
    if (variable != nullptr) options.tracking_uri = variable;
  }
  const bool is_server =
      options.tracking_uri.starts_with("http://") || options.tracking_uri.starts_with("https://");
  LEVIN_CHECK(is_server, "observe.logger.mlflow",
              "got tracking_uri '{}', wanted http://HOST:PORT or https://HOST of an MLflow server; "
              "set it, or MLFLOW_TRACKING_URI, or start `mlflow server`",
              options.tracking_uri);
  LEVIN_CHECK(
      options.log_model == "false" || options.log_model == "true" || options.log_model == "all",
      "observe.logger.mlflow", "got log_model '{}', wanted false, true or all", options.log_model);
  LEVIN_CHECK(!options.experiment_name.empty(), "observe.logger.mlflow",
              "got an empty experiment_name, wanted a name");
  const detail::Http loads_curl;
  auto directory = std::make_shared<detail::RunDirectory>(
      LoggerOptions{.save_dir = options.save_dir,
                    .name = detail::file_name_of(options.experiment_name),
                    .prefix = options.prefix});
  return std::make_shared<MlflowLogger>(std::move(directory), std::move(options));
}

}  // namespace levin
