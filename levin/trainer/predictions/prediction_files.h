#pragma once
// PredictionFiles: the callback that writes the outputs of predict_step while they are made. Not
// for users: prediction_writer returns one, and `predict` of levin::cli has one.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "levin/module/module.h"
#include "levin/trainer/predictions/row_file.h"
#include "levin/trainer/predictions/spool.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

struct PredictionFilesOptions {
  std::filesystem::path folder;                     ///< of all files; it is made
  std::optional<std::filesystem::path> whole = {};  ///< file of all rows
  /// Returns the name of the file of a batch; empty: there are no such files.
  std::function<std::string(int64_t batch)> name_of_batch = {};
  RowFormat format = RowFormat::kSafetensors;
  /// Called on the main process before anything is predicted, with the files that an earlier
  /// prediction of this callback has written: throws if there is a file that must not be replaced.
  std::function<void(const std::set<std::filesystem::path>& own)> check = {};
};

/// Throws the errors of prediction_writer.
class PredictionFiles final : public Callback {
 public:
  explicit PredictionFiles(PredictionFilesOptions options) : options_(std::move(options)) {}

  std::string state_key() const override { return "prediction_writer-" + options_.folder.string(); }
  void on_evaluation_start(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_predict_batch_end(Trainer& trainer, Module& module, const at::Tensor& output,
                            const Batch& batch, int64_t batch_index) override;
  void on_evaluation_end(Trainer& trainer, Module& module, std::string_view stage) override;
  void on_exception(Trainer& trainer, Module& module, const std::exception& error) override;

 private:
  void write(const at::Tensor& rows);
  void write_to_batches(at::Tensor rows);
  void commit(const std::filesystem::path& path, RowFile& file);
  void agree_on_kind(Accelerator& accelerator);
  void merge(Accelerator& accelerator);
  void drop();

  PredictionFilesOptions options_;
  std::set<std::filesystem::path> written_;  ///< files of this callback that are there
  std::set<std::filesystem::path> fresh_;    ///< those of the prediction under way
  bool is_split_ = false;                    ///< each rank predicts a part of the rows
  std::optional<RowKind> kind_;              ///< once a row was predicted
  std::vector<int64_t> counts_;  ///< rows of each batch of this rank; in merge(), of all ranks
  std::optional<Spool> spool_;   ///< this rank's rows, if is_split_
  std::optional<RowFile> whole_;
  std::optional<RowFile> of_batch_;
  int64_t batches_done_ = 0;  ///< files of batches that are complete
  int64_t rows_in_batch_ = 0;
};

/// Throws Error "files.replace" where something stands at the path beside predictions that levin wrote.
void check_predictions_file(const std::string& path);
/// Returns the callback of `predict` of levin::cli, which writes a safetensors file.
std::shared_ptr<Callback> predictions_to(const std::string& path);

}  // namespace levin::detail
