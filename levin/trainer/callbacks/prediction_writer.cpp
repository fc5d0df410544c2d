#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "levin/base/check.h"
#include "levin/files/folder.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/predictions/prediction_files.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

detail::RowFormat format_of(const std::string& name) {
  LEVIN_CHECK(name == "npy" || name == "csv" || name == "safetensors", "trainer.prediction_writer",
              "got format = '{}', wanted npy, csv or safetensors", name);
  return name == "npy"   ? detail::RowFormat::kNpy
         : name == "csv" ? detail::RowFormat::kCsv
                         : detail::RowFormat::kSafetensors;
}

/// "predictions.npy", "predictions_000012.npy"
bool is_of_predictions(const fs::path& file, const std::string& extension) {
  const std::string stem = file.stem().string();
  if (file.extension() != extension || !stem.starts_with(detail::kPredictions)) return false;
  const std::string rest = stem.substr(std::string(detail::kPredictions).size());
  return rest.empty() || (rest.front() == '_' && rest.size() > 1 &&
                          rest.find_first_not_of("0123456789", 1) == std::string::npos);
}

}  // namespace

std::shared_ptr<Callback> prediction_writer(PredictionWriterOptions options) {
  const bool by_batch = options.write_interval != "epoch";
  const bool by_epoch = options.write_interval != "batch";
  LEVIN_CHECK(!options.output_dir.empty(), "trainer.prediction_writer",
              "got no output_dir; set the folder for the files");
  LEVIN_CHECK(!by_batch || !by_epoch || options.write_interval == "batch_and_epoch",
              "trainer.prediction_writer",
              "got write_interval = '{}', wanted batch, epoch or batch_and_epoch",
              options.write_interval);
  detail::PredictionFilesOptions files{.folder = options.output_dir,
                                       .format = format_of(options.format)};
  const std::string extension = "." + options.format;
  if (by_epoch) files.whole = files.folder / (detail::kPredictions + extension);
  if (by_batch) {
    files.name_of_batch = [extension](int64_t batch) {
      return fmt::format("{}_{:06}{}", detail::kPredictions, batch, extension);
    };
  }
  files.check = [folder = files.folder, extension](const std::set<fs::path>& own) {
    std::error_code error;
    if (!fs::exists(folder, error)) return;
    for (const fs::path& file : files::entries_of(folder)) {
      LEVIN_CHECK(
          !is_of_predictions(file, extension) || own.contains(file), "files.replace",
          "cannot write predictions to {}: {} exists, and this run has not written it; name "
          "another output_dir, or remove the file",
          folder.string(), file.string());
    }
  };
  return std::make_shared<detail::PredictionFiles>(std::move(files));
}

}  // namespace levin
