#include "levin/trainer/predictions/prediction_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/files/safetensors.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

/// Samples of a batch: pad_last_batch marks those it added.
int64_t samples_of(const Batch& batch) {
  for (const auto& [name, tensor] : batch) {
    if (name == "sample_mask") return tensor.sum().item<int64_t>();
  }
  return batch.size();
}

RowKind kind_of(const at::Tensor& rows) {
  return {rows.scalar_type(), rows.sizes().slice(1).vec()};
}

}  // namespace

void PredictionFiles::drop() {
  whole_.reset();
  of_batch_.reset();
  spool_.reset();
  kind_.reset();
  counts_.clear();
  batches_done_ = rows_in_batch_ = 0;
}

void PredictionFiles::on_evaluation_start(Trainer& trainer, Module&, std::string_view stage) {
  if (stage != "predict") return;
  drop();
  Accelerator& accelerator = trainer.accelerator();
  is_split_ = accelerator.num_processes() > 1 && trainer.options().engine.use_distributed_sampler;
  accelerator.all_or_throw([&] {
    if (accelerator.is_main_process() && options_.check) options_.check(written_);
    if (!is_split_ && !accelerator.is_main_process()) return;
    std::error_code error;
    fs::create_directories(options_.folder, error);
    LEVIN_CHECK(!error, "files.write", "could not make {}: {}", options_.folder.string(),
                error.message());
    files::remove_stale_staging(options_.folder);
    if (is_split_) {
      spool_.emplace(options_.folder /
                     fmt::format("predictions-of-rank-{}", accelerator.process_index()));
    }
  });
  fresh_.clear();
}

void PredictionFiles::on_predict_batch_end(Trainer& trainer, Module&, const at::Tensor& output,
                                           const Batch& batch, int64_t) {
  if (!is_split_ && !trainer.accelerator().is_main_process()) return;
  LEVIN_CHECK(output.defined() && output.dim() > 0, "trainer.predictions",
              "predict_step returned {}, wanted a tensor with rows to write",
              output.defined() ? "a tensor without rows" : "no tensor");
  LEVIN_CHECK(
      !is_split_ || trainer.dataloader_index() == 0, "trainer.predictions",
      "got several prediction loaders with {} processes, wanted one loader to order the rows; "
      "predict with one process",
      trainer.accelerator().num_processes());
  LEVIN_CHECK(
      !is_split_ || output.size(0) == samples_of(batch), "trainer.predictions",
      "predict_step returned {} rows for a batch of {} samples, wanted one row per sample to "
      "order the rows of several processes; predict with one process",
      output.size(0), samples_of(batch));
  const at::Tensor rows = output.detach().cpu();
  counts_.push_back(rows.size(0));
  if (rows.size(0) == 0) return;  // of a rank without a sample
  if (!kind_) {
    kind_ = kind_of(rows);
    check_kind(options_.format, *kind_);
  }
  LEVIN_CHECK(*kind_ == kind_of(rows), "trainer.predictions",
              "predict_step returned rows of {} after rows of {}, wanted all alike for one file",
              kind_of(rows).text(), kind_->text());
  if (is_split_) return spool_->append(rows);
  write(rows);
}

// A row belongs to the batch whose rows are not complete yet.
void PredictionFiles::write_to_batches(at::Tensor rows) {
  while (rows.size(0) > 0) {
    while (counts_[static_cast<size_t>(batches_done_)] == 0) ++batches_done_;
    const fs::path path = options_.folder / options_.name_of_batch(batches_done_);
    if (!of_batch_) of_batch_.emplace(path, options_.format, *kind_);
    const int64_t wanted = counts_[static_cast<size_t>(batches_done_)] - rows_in_batch_;
    const int64_t taken = std::min(wanted, rows.size(0));
    of_batch_->append(rows.narrow(0, 0, taken));
    rows = rows.narrow(0, taken, rows.size(0) - taken);
    rows_in_batch_ += taken;
    if (taken < wanted) return;
    commit(path, *of_batch_);
    of_batch_.reset();
    rows_in_batch_ = 0;
    ++batches_done_;
  }
}

void PredictionFiles::commit(const fs::path& path, RowFile& file) {
  file.commit();
  written_.insert(path);
  fresh_.insert(path);
}

void PredictionFiles::write(const at::Tensor& rows) {
  if (options_.whole && !whole_) whole_.emplace(*options_.whole, options_.format, *kind_);
  if (whole_) whole_->append(rows);
  if (options_.name_of_batch) write_to_batches(rows);
}

/// A rank without a sample takes the kind of the others.
void PredictionFiles::agree_on_kind(Accelerator& accelerator) {
  State own;
  if (kind_) own.set("kind", at::empty(kind_->sizes, kind_->dtype).unsqueeze(0).narrow(0, 0, 0));
  own.set("counts", at::tensor(counts_, at::TensorOptions(at::kLong)));
  const std::vector<State> all = accelerator.gather_object(own);
  counts_.clear();
  for (const State& one : all) {
    if (one.contains("kind")) {
      const RowKind other = kind_of(one.tensor("kind"));
      if (!kind_) kind_ = other;
      LEVIN_CHECK(
          *kind_ == other, "trainer.predictions",
          "predict_step returned rows of {} on one process and of {} on another, wanted all "
          "alike for one file",
          kind_->text(), other.text());
    }
    const at::Tensor& counts = one.tensor("counts");
    counts_.resize(std::max(counts_.size(), static_cast<size_t>(counts.size(0))));
    for (int64_t i = 0; i < counts.size(0); ++i) {
      counts_[static_cast<size_t>(i)] += counts[i].item<int64_t>();
    }
  }
}

void PredictionFiles::merge(Accelerator& accelerator) {
  agree_on_kind(accelerator);
  if (!kind_) return;
  in_order(accelerator, *spool_, *kind_, [&](const at::Tensor& rows) { write(rows); });
}

void PredictionFiles::on_evaluation_end(Trainer& trainer, Module&, std::string_view stage) {
  if (stage != "predict") return;
  Accelerator& accelerator = trainer.accelerator();
  if (is_split_) merge(accelerator);
  accelerator.all_or_throw([&] {
    if (!is_split_ && !accelerator.is_main_process()) return;
    LEVIN_CHECK(kind_, "trainer.predictions",
                "no process predicted anything; give a prediction loader with data");
    if (whole_) commit(*options_.whole, *whole_);
  });
  for (const fs::path& own : written_) {  // an earlier prediction may have had more batches
    std::error_code error;
    if (!fresh_.contains(own)) fs::remove(own, error);
  }
  written_ = std::move(fresh_);
  drop();
}

void PredictionFiles::on_exception(Trainer&, Module&, const std::exception&) { drop(); }

void check_predictions_file(const std::string& path) {
  std::error_code unknown;
  const auto there = fs::symlink_status(path, unknown);
  if (there.type() == fs::file_type::not_found) return;
  bool is_own = false;
  if (fs::is_regular_file(there)) {
    try {
      const files::SafetensorsFile file{fs::path(path)};
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

std::shared_ptr<Callback> predictions_to(const std::string& path) {
  const fs::path parent = fs::absolute(path).parent_path();
  return std::make_shared<PredictionFiles>(PredictionFilesOptions{.folder = parent, .whole = path});
}

}  // namespace levin::detail
