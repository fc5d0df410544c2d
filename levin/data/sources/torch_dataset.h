#pragma once
// torch_dataset: a data set of torch::data, as it is, for a DataLoader.
// Its loader then shuffles, splits over the processes and is taken up again as any other.
//
//   auto mnist = torch::data::datasets::MNIST("data").map(torch::data::transforms::Normalize<>(0.1,
//   0.3)); levin::DataLoader loader(levin::data::torch_dataset(mnist), {.batch_size = 64, .shuffle
//   = true}); for (const auto& batch : loader) model->forward(batch["data"]);  // and
//   batch["target"]

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/dataset.h"

namespace levin::data {

namespace detail {

// What get_batch of torch::data gives: a vector of samples, or (after map(Stack<>())) one of the
// batch; a sample is a tensor, or an Example of data and target. torch::data itself need not be
// included for them.

template <class T>
concept IsTorchExample = requires(T example) { example.data; };

inline Batch to_batch(const at::Tensor& data) { return {{"data", data}}; }
template <IsTorchExample Example>
Batch to_batch(const Example& example) {
  if constexpr (requires { at::Tensor(example.target); }) {
    return {{"data", example.data}, {"target", example.target}};
  } else {
    return {{"data", example.data}};
  }
}
template <class T>
Batch to_batch(const std::vector<T>& samples) {
  std::vector<at::Tensor> data, target;
  for (const T& sample : samples) {
    const Batch fields = to_batch(sample);
    data.push_back(fields["data"]);
    if (fields.contains("target")) target.push_back(fields["target"]);
  }
  if (target.empty()) return {{"data", at::stack(data)}};
  return {{"data", at::stack(data)}, {"target", at::stack(target)}};
}

LEVIN_API int64_t known_size(std::optional<size_t> size);

/// Each thread that reads at the same time has a copy of the data set, as in torch's own loader:
/// its get_batch may change it.
template <class TorchDataset>
class TorchDatasetAdapter final : public Dataset {
 public:
  explicit TorchDatasetAdapter(TorchDataset dataset) : original_(std::move(dataset)) {
    size_ = known_size(original_.size());
  }

  int64_t size() const override { return size_; }
  Batch get(std::span<const int64_t> indices) const override {
    std::unique_ptr<TorchDataset> reader = take();
    const std::vector<size_t> wanted(indices.begin(), indices.end());
    Batch batch = to_batch(reader->get_batch(wanted));
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
    return batch;
  }

 private:
  std::unique_ptr<TorchDataset> take() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<TorchDataset>(original_);
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  TorchDataset original_;
  int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TorchDataset>> idle_;
};

}  // namespace detail

/// Fields "data" and, where its examples have one, "target"; samples are stacked. What it draws
/// belongs to the batch, since a batch is what it is asked for. Throws Error
/// "data.torch_dataset.size" for one that does not know its size.
template <class TorchDataset>
DatasetPtr torch_dataset(TorchDataset dataset) {
  return std::make_shared<detail::TorchDatasetAdapter<TorchDataset>>(std::move(dataset));
}

}  // namespace levin::data
