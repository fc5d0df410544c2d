#include <fmt/format.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/files/event_file.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

double wall_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

class TensorBoardLogger : public Logger {
 public:
  explicit TensorBoardLogger(std::shared_ptr<detail::RunDirectory> directory)
      : directory_(std::move(directory)) {}

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override {
    directory_->attempt([&] {
      const double now = wall_time_s();
      for (const auto& [name, value] : values) add(name, value, step, now);
      add("epoch", static_cast<double>(epoch), step, now);
      file().flush();
    });
  }

  void log_hyperparams(const std::map<std::string, std::string>& hyperparams) override {
    directory_->attempt([&] {
      // The text plug-in shows Markdown.
      std::string table = "| option | value |\n| --- | --- |\n";
      for (const auto& [key, value] : hyperparams) table += "| " + key + " | " + value + " |\n";
      file().add_text("hparams", table, resumed_at_);
      file().flush();
      directory_->write_hyperparams(hyperparams);
    });
  }

  void flush() override {}  // every call writes through

  std::string log_dir() const override { return directory_->path(); }

  State state_dict() const override {
    State newest;
    for (const auto& [name, points] : newest_) {
      State values;
      for (size_t i = 0; i < points.values.size(); ++i) {
        values.set(fmt::format("{:06}", i), points.values[i]);
      }
      State one;
      one.set("step", points.step).set("values", std::move(values));
      newest.set(name, std::move(one));
    }
    return std::move(directory_->state_dict().set("newest", std::move(newest)));
  }
  // Values logged at the checkpoint's step are dropped, so those from before the checkpoint are rewritten.
  bool resume(const State& state, int64_t step) override {
    if (!directory_->resume(state)) return false;
    resumed_at_ = step;
    newest_.clear();
    directory_->attempt([&] {
      file().add_session_start(step);
      const State& newest = state.child("newest");
      for (const auto& [name, value] : newest.values()) {
        const int64_t at = newest.child(name).integer("step");
        const State& values = newest.child(name).child("values");
        for (const auto& [place, one] : values.values()) {
          if (at >= step) add(name, values.number(place), at, wall_time_s());
        }
      }
      file().flush();
    });
    return true;
  }
  std::vector<std::string> known_dirs() const override { return directory_->known_dirs(); }

 private:
  files::EventFile& file() {
    if (!file_) file_.emplace(directory_->path());
    return *file_;
  }

  void add(const std::string& name, double value, int64_t step, double wall_time_s) {
    Points& points = newest_[name];
    if (std::exchange(points.step, step) != step) points.values.clear();
    points.values.push_back(value);
    file().add_scalar(name, value, step, wall_time_s);
  }

  /// The values that one name was logged with at its newest step.
  struct Points {
    int64_t step = -1;
    std::vector<double> values;
  };

  std::shared_ptr<detail::RunDirectory> directory_;
  std::optional<files::EventFile> file_;
  int64_t resumed_at_ = 0;  // step from which this process resumes
  std::map<std::string, Points> newest_;
};

}  // namespace

std::shared_ptr<Logger> detail::tensorboard_logger_in(std::shared_ptr<RunDirectory> directory) {
  return std::make_shared<TensorBoardLogger>(std::move(directory));
}

std::shared_ptr<Logger> tensorboard_logger(LoggerOptions options) {
  return detail::tensorboard_logger_in(std::make_shared<detail::RunDirectory>(std::move(options)));
}

std::vector<std::shared_ptr<Logger>> csv_and_tensorboard(LoggerOptions options) {
  const auto directory = std::make_shared<detail::RunDirectory>(std::move(options));
  return {detail::csv_logger_in(directory), detail::tensorboard_logger_in(directory)};
}

}  // namespace levin
