#include "levin/trainer/predictions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/files/safetensors.h"

namespace levin::detail {
namespace {

/// Samples of a batch: pad_last_batch marks those it added.
int64_t samples_of(const Batch& batch) {
  for (const auto& [name, tensor] : batch) {
    if (name == "sample_mask") return tensor.sum().item<int64_t>();
  }
  return batch.size();
}

void check_rows(const std::vector<at::Tensor>& outputs, const std::vector<int64_t>& samples) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool has_rows = outputs[i].defined() && outputs[i].dim() > 0;
    LEVIN_CHECK(has_rows && outputs[i].size(0) == samples[i], "trainer.predictions",
                "predict_step returned {} for a batch of {} samples, wanted one row per sample to "
                "order the rows of several processes; predict with one process",
                has_rows ? fmt::format("{} rows", outputs[i].size(0)) : "a tensor without rows",
                samples[i]);
  }
}

}  // namespace

struct PredictionWatch::WatchedData : DataModule {
  std::shared_ptr<DataModule> data;
  PredictionWatch& watch;

  WatchedData(std::shared_ptr<DataModule> data, PredictionWatch& watch)
      : data(std::move(data)), watch(watch) {}
  void prepare_data() override { data->prepare_data(); }
  void setup(std::string_view stage) override { data->setup(stage); }
  void teardown(std::string_view stage) override { data->teardown(stage); }
  std::vector<DataLoader> predict_dataloaders() override {
    std::vector<DataLoader> loaders = data->predict_dataloaders();
    watch.num_loaders_ = std::ssize(loaders);
    watch.is_stream_ = !loaders.empty() && loaders.front().dataset() == nullptr;
    return loaders;
  }
  Batch on_before_batch_transfer(Batch batch) override {
    return data->on_before_batch_transfer(std::move(batch));
  }
  std::optional<Batch> transfer_batch_to_device(const Batch& batch, at::Device device) override {
    return data->transfer_batch_to_device(batch, device);
  }
  Batch on_after_batch_transfer(Batch batch) override {
    return data->on_after_batch_transfer(std::move(batch));
  }
  void on_exception(const std::exception& error) override { data->on_exception(error); }
};

void PredictionWatch::on_evaluation_batch_end(Trainer&, Module&, std::string_view,
                                              const Batch& batch, int64_t) {
  samples_.push_back(samples_of(batch));
}

std::shared_ptr<DataModule> PredictionWatch::watched(std::shared_ptr<DataModule> data) {
  return std::make_shared<WatchedData>(std::move(data), *this);
}

at::Tensor joined(Trainer& trainer, const std::vector<at::Tensor>& outputs,
                  const PredictionWatch& watch) {
  Accelerator& accelerator = trainer.accelerator();
  const int64_t processes = accelerator.num_processes();
  if (processes == 1) return at::cat(outputs);
  LEVIN_CHECK(watch.num_loaders() <= 1, "trainer.predictions",
              "got {} prediction loaders with {} processes, wanted one loader to order the rows; "
              "predict with one process",
              watch.num_loaders(), processes);
  check_rows(outputs, watch.samples());
  State own;
  if (!outputs.empty()) own.set("rows", at::cat(outputs).cpu());
  std::vector<at::Tensor> rows, places;
  const std::vector<State> all = accelerator.gather_object(own);
  const bool all_alike = !trainer.options().engine.use_distributed_sampler;
  for (int64_t rank = 0; rank < (all_alike ? 1 : processes); ++rank) {
    const State& one = all[static_cast<size_t>(rank)];
    if (one.empty()) continue;
    rows.push_back(one.tensor("rows"));
    places.push_back(at::arange(rows.back().size(0), at::kLong) * processes + rank);
  }
  LEVIN_CHECK(!rows.empty(), "trainer.predictions",
              "no process predicted anything; give a prediction loader with data");
  const at::Tensor joined = at::cat(rows);
  const bool is_split = watch.is_stream() && !trainer.options().dispatch_batches;
  if (is_split || rows.size() == 1) return joined;
  return joined.index_select(0, at::argsort(at::cat(places)));
}

void check_predictions_file(const std::string& path) {
  std::error_code unknown;
  const auto there = std::filesystem::symlink_status(path, unknown);
  if (there.type() == std::filesystem::file_type::not_found) return;
  bool is_own = false;
  if (std::filesystem::is_regular_file(there)) {
    try {
      const files::SafetensorsFile file{std::filesystem::path(path)};
      is_own = file.entries().size() == 1 && file.find(kPredictions) != nullptr;
    } catch (const Error&) {
      is_own = false;  // another file
    }
  }
  LEVIN_CHECK(is_own, "files.replace",
              "cannot write predictions to {}: it exists and holds something else; name a new file "
              "with --output",
              path);
}

}  // namespace levin::detail
