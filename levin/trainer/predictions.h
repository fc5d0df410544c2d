#pragma once
// Predictions of all processes, put together in the order of the samples.
// After Trainer::predict, which gives each process those of its own batches.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/module.h"
#include "levin/module/module.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

/// Sees what is predicted of: how many samples each batch has, and whether they are read by index.
class PredictionWatch : public Callback {
 public:
  std::string state_key() const override { return "levin.predictions"; }
  void on_evaluation_batch_end(Trainer& trainer, Module& module, std::string_view stage,
                               const Batch& batch, int64_t batch_index) override;
  /// The same data, whose loader is looked at.
  std::shared_ptr<DataModule> watched(std::shared_ptr<DataModule> data);

  const std::vector<int64_t>& samples() const { return samples_; }
  bool is_stream() const { return is_stream_; }
  int64_t num_loaders() const { return num_loaders_; }

 private:
  struct WatchedData;
  std::vector<int64_t> samples_;
  bool is_stream_ = false;
  int64_t num_loaders_ = 0;
};

/// Returns on every process the outputs of all along dim 0, on the CPU if there are several
/// processes. Sample k of process r is number k * num_processes + r of all. If each process reads a
/// stream for itself, there is no such order and processes follow each other. If all read the same
/// data, the main process' outputs are taken. Throws Error "trainer.predictions" if several
/// processes have an output without a row for each sample.
at::Tensor joined(Trainer& trainer, const std::vector<at::Tensor>& outputs,
                  const PredictionWatch& watch);

/// The name of the one tensor of a file of predictions.
constexpr const char* kPredictions = "predictions";
/// Throws Error "files.replace" where something stands at the path beside predictions that levin wrote.
void check_predictions_file(const std::string& path);

}  // namespace levin::detail
