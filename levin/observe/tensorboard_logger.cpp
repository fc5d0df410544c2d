#include <chrono>
#include <optional>

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
  explicit TensorBoardLogger(LoggerOptions options) : directory_(std::move(options)) {}

  void log_metrics(const Scalars& values, int64_t epoch, int64_t step) override {
    directory_.attempt([&] {
      files::EventFile& events = file();
      const double now = wall_time_s();
      for (const Scalar& scalar : values) events.add_scalar(scalar.name, scalar.value, step, now);
      events.add_scalar("epoch", static_cast<double>(epoch), step, now);
      events.flush();
    });
  }

  void log_hyperparams(const std::map<std::string, std::string>& hyperparams) override {
    directory_.attempt([&] {
      // The text plug-in shows Markdown.
      std::string table = "| option | value |\n| --- | --- |\n";
      for (const auto& [key, value] : hyperparams) table += "| " + key + " | " + value + " |\n";
      file().add_text("hparams", table, 0);
      file().flush();
      directory_.write_hyperparams(hyperparams);
    });
  }

  void flush() override {}  // every call writes through

  std::string log_dir() const override { return directory_.path(); }

 private:
  files::EventFile& file() {
    if (!file_) file_.emplace(directory_.path());
    return *file_;
  }

  detail::RunDirectory directory_;
  std::optional<files::EventFile> file_;
};

}  // namespace

std::shared_ptr<Logger> tensorboard_logger(LoggerOptions options) {
  return std::make_shared<TensorBoardLogger>(std::move(options));
}

}  // namespace levin
