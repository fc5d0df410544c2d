#include <ATen/ops/empty.h>

#include <atomic>
#include <mutex>

#include "levin/base/check.h"
#include "levin/data/collate/gather.h"
#include "levin/data/sample_random.h"
#include "levin/data/tools/tools_impl.h"

namespace levin::data {
namespace {

class CachedDataset final : public Dataset {
 public:
  explicit CachedDataset(DatasetPtr dataset)
      : dataset_(detail::checked_dataset(std::move(dataset))),
        states_(static_cast<size_t>(dataset_->size())) {}

  int64_t size() const override { return std::ssize(states_); }
  bool in_memory() const override { return dataset_->in_memory(); }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }

  Batch draw(std::span<const int64_t> indices, const DrawContext&, Batch reuse) const override {
    detail::is_run(indices, size());
    if (indices.empty()) return dataset_->get(indices);
    for (const int64_t index : indices) keep(index);
    Batch batch;
    for (const auto& [name, rows] : rows_) {
      at::DimVector sizes(rows.sizes());
      sizes[0] = std::ssize(indices);
      const at::Tensor out = detail::output_for(reuse, name, sizes, rows.scalar_type());
      detail::gather_rows(rows, indices, out);
      batch.set(name, out);
    }
    return batch;
  }

 private:
  enum State : uint8_t { kAbsent, kBeingWritten, kKept };

  /// Reads the sample unless it is kept. Draws must not depend on who reads it first and when.
  void keep(int64_t index) const {
    std::atomic<uint8_t>& state = states_[static_cast<size_t>(index)];
    if (state.load(std::memory_order_acquire) == kKept) return;
    Batch sample;
    {
      const detail::DrawScope draws({}, detail::DrawsOf::kSample, {&index, 1});
      sample = dataset_->draw({&index, 1}, {}, {});
    }
    allocate(sample, index);
    uint8_t expected = kAbsent;
    if (state.compare_exchange_strong(expected, kBeingWritten)) {
      for (const auto& [name, rows] : rows_) rows.select(0, index).copy_(sample[name].select(0, 0));
      state.store(kKept, std::memory_order_release);
      state.notify_all();
    } else {
      state.wait(kBeingWritten, std::memory_order_acquire);
    }
  }

  /// The first sample tells the shapes. Memory that holds no sample yet is only reserved.
  void allocate(const Batch& sample, int64_t index) const {
    const std::lock_guard lock(mutex_);
    const bool is_first = rows_.empty();
    if (is_first) first_ = index;
    LEVIN_CHECK(!sample.empty() && (is_first || sample.fields().size() == rows_.fields().size()),
                "data.samples.stack",
                "sample {} has {} fields, but sample {} has {}; give all samples the same fields",
                index, sample.fields().size(), first_, rows_.fields().size());
    Batch rows;
    for (const auto& [name, tensor] : sample) {
      at::DimVector sizes(tensor.sizes());
      LEVIN_CHECK(!sizes.empty() && sizes[0] == 1 && (is_first || rows_.contains(name)),
                  "data.samples.stack",
                  "sample {} has '{}' of the shape {} in a batch of one; give all samples the same "
                  "fields, with the samples along dim 0",
                  index, name, c10::str(tensor.sizes()));
      sizes[0] = size();
      if (is_first) {
        rows.set(name, at::empty(sizes, tensor.scalar_type()));
        continue;
      }
      LEVIN_CHECK(rows_[name].sizes() == at::IntArrayRef(sizes) &&
                      rows_[name].scalar_type() == tensor.scalar_type(),
                  "data.samples.stack",
                  "'{}' is {} {} in sample {}, but {} {} in sample {}; give all samples one shape "
                  "and dtype",
                  name, c10::toString(tensor.scalar_type()), c10::str(tensor.sizes().slice(1)),
                  index, c10::toString(rows_[name].scalar_type()),
                  c10::str(rows_[name].sizes().slice(1)), first_);
    }
    if (is_first) rows_ = std::move(rows);
  }

  DatasetPtr dataset_;
  mutable std::vector<std::atomic<uint8_t>> states_;  ///< State of each sample
  mutable std::mutex mutex_;
  mutable Batch rows_;  ///< each field of all samples; set once, before any sample is kept
  mutable int64_t first_ = 0;
};

}  // namespace

DatasetPtr cache(DatasetPtr dataset) { return std::make_shared<CachedDataset>(std::move(dataset)); }

}  // namespace levin::data
