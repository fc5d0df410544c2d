#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/text/utf8.h"
#include "levin/files/event_file.h"
#include "levin/observe/loggers/pictures.h"
#include "levin/observe/loggers/summaries.h"
#include "levin/observe/run_directory_impl.h"

namespace levin {
namespace {

double wall_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

class TensorBoardLogger : public detail::FolderLogger {
 public:
  TensorBoardLogger(std::shared_ptr<detail::RunDirectory> directory, TensorBoardOptions options)
      : FolderLogger(std::move(directory)), options_(std::move(options)) {}

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override {
    directory().attempt([&] {
      const double now = wall_time_s();
      for (const auto& [name, value] : values) add(full_name(name), value, step, now);
      add("epoch", static_cast<double>(epoch), step, now);
      file().flush();
    });
  }

  void log_hyperparams(const std::map<std::string, std::string>& given) override {
    directory().attempt([&] {
      std::map<std::string, std::string> hyperparams;
      for (const auto& [name, text] : given) hyperparams[utf8::lossy(name)] = utf8::lossy(text);
      // The text plug-in shows Markdown.
      std::string table = "| option | value |\n| --- | --- |\n";
      for (const auto& [key, value] : hyperparams) table += "| " + key + " | " + value + " |\n";
      file().add_text("hparams", table, resumed_at_);
      std::vector<std::string> metrics = options_.hp_metrics;
      if (options_.default_hp_metric) metrics.insert(metrics.begin(), "hp_metric");
      for (std::string& metric : metrics) metric = full_name(metric);
      file().add_value(detail::experiment_summary(hyperparams, metrics), resumed_at_);
      file().add_value(detail::session_start_summary(hyperparams), resumed_at_);
      if (options_.default_hp_metric && !has_resumed_) {
        add(metrics.front(), -1, 0, wall_time_s());
      }
      has_session_ = true;
      file().flush();
      directory().write_hyperparams(given);
    });
  }

  void log_image(const std::string& name, const at::Tensor& image, int64_t step,
                 std::string_view format) override {
    const at::Tensor pixels = detail::pixels_of(name, image, format);
    write(detail::image_summary(full_name(name), pixels), step);
  }
  void log_histogram(const std::string& name, const at::Tensor& values, int64_t step) override {
    const at::Tensor elements = detail::elements_of(name, values);
    if (elements.numel() == 0) return say_not_finite(name);
    write(detail::histogram_summary(full_name(name), elements), step);
  }
  void log_text(const std::string& name, const std::string& text, int64_t step) override {
    write(detail::text_summary(full_name(name), utf8::lossy(text)), step);
  }
  void log_graph(const torch::nn::Module& module) override {
    if (!options_.log_graph || has_resumed_) return;
    directory().attempt([&] {
      file().add_graph(detail::graph_of(module));
      file().flush();
    });
  }
  void finalize(std::string_view status) override {
    if (has_session_) write(detail::session_end_summary(status == "success"), newest_step_);
  }

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
    return std::move(directory().state_dict().set("newest", std::move(newest)));
  }
  // Values logged at the checkpoint's step are dropped, so those from before the checkpoint are rewritten.
  bool resume(const State& state, int64_t step) override {
    if (!directory().resume(state)) return false;
    resumed_at_ = step;
    has_resumed_ = true;
    newest_.clear();
    directory().attempt([&] {
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

 private:
  files::EventFile& file() {
    if (!file_) file_.emplace(std::filesystem::path(directory().path()) / options_.sub_dir);
    return *file_;
  }

  void write(const std::string& summary, int64_t step) {
    directory().attempt([&] {
      file().add_value(summary, step);
      file().flush();
    });
  }

  void say_not_finite(const std::string& name) {
    if (std::exchange(warned_of_nan_, true)) return;
    log::warn("'{}' has no finite element, so its histogram is left out", name);
  }

  void add(const std::string& name, double value, int64_t step, double wall_time_s) {
    newest_step_ = std::max(newest_step_, step);
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

  TensorBoardOptions options_;
  std::optional<files::EventFile> file_;
  int64_t resumed_at_ = 0;  // step from which this process resumes
  bool has_resumed_ = false;
  bool has_session_ = false;  // of the plugin hparams
  bool warned_of_nan_ = false;
  int64_t newest_step_ = 0;
  std::map<std::string, Points> newest_;
};

}  // namespace

std::shared_ptr<Logger> detail::tensorboard_logger_in(std::shared_ptr<RunDirectory> directory,
                                                      TensorBoardOptions options) {
  return std::make_shared<TensorBoardLogger>(std::move(directory), std::move(options));
}

void TensorBoardOptions::fields(FieldVisitor& field) {
  field("save_dir", save_dir, "folder that holds all runs");
  field("name", name, "subfolder of save_dir for the experiment; empty: none");
  field("version", version, "number of the run; none: the highest so far plus one");
  field("log_graph", log_graph, "log the module's structure");
  field("default_hp_metric", default_hp_metric, "log hp_metric = -1 at the beginning");
  field("prefix", prefix, "put before each name, joined by '-'");
  field("sub_dir", sub_dir, "folder for the event files below the run's");
  field("hp_metrics", hp_metrics, "more values to show in the tab HParams");
}

std::shared_ptr<Logger> tensorboard_logger(TensorBoardOptions options) {
  const std::filesystem::path below(options.sub_dir);
  const bool goes_up = std::ranges::find(below, "..") != below.end();
  LEVIN_CHECK(!below.is_absolute() && !goes_up, "observe.logger.dir",
              "got sub_dir = '{}', wanted a folder below the run's", options.sub_dir);
  auto directory = std::make_shared<detail::RunDirectory>(
      LoggerOptions{options.save_dir, options.name, options.version, options.prefix});
  return detail::tensorboard_logger_in(std::move(directory), std::move(options));
}

std::vector<std::shared_ptr<Logger>> csv_and_tensorboard(LoggerOptions options) {
  const auto directory = std::make_shared<detail::RunDirectory>(std::move(options));
  return {detail::csv_logger_in(directory), detail::tensorboard_logger_in(directory, {})};
}

}  // namespace levin
