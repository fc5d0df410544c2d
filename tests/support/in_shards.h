#pragma once
// Rows of tensors as a stream in shards: data whose every sample can be told from the others.

#include <ATen/ops/arange.h>

#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "levin/data/dataset.h"

namespace levin::test {

/// Shard s holds the next sizes[s] rows of the fields.
struct InShards : IterableDataset {
  Batch fields;
  std::vector<int64_t> sizes;
  bool tells_sizes = false;
  std::function<void(int64_t shard, int64_t sample)> on_read;  ///< before a sample is given

  InShards(Batch fields, std::vector<int64_t> sizes)
      : fields(std::move(fields)), sizes(std::move(sizes)) {}

  int64_t num_shards() const override { return std::ssize(sizes); }
  std::optional<int64_t> shard_size(int64_t shard) const override {
    return tells_sizes ? std::optional(sizes[static_cast<size_t>(shard)]) : std::nullopt;
  }
  std::unique_ptr<SampleStream> open(int64_t shard, const DrawContext&) const override {
    return std::make_unique<Rows>(*this, shard);
  }

 private:
  struct Rows : SampleStream {
    const InShards& data;
    int64_t shard, at = 0;
    Rows(const InShards& data, int64_t shard) : data(data), shard(shard) {}
    bool next(data::Sample& sample) override {
      const auto first = data.sizes.begin();
      if (at == first[shard]) return false;
      if (data.on_read) data.on_read(shard, at);
      const int64_t row = std::accumulate(first, first + shard, int64_t{0}) + at++;
      sample = {};
      for (const auto& [name, tensor] : data.fields) sample.set(name, tensor[row].clone());
      return true;
    }
  };
};

/// {"index": 0, 1, 2, ...} over the shards.
inline std::shared_ptr<InShards> numbers_in_shards(std::vector<int64_t> sizes,
                                                   bool tells_sizes = false) {
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  auto data =
      std::make_shared<InShards>(Batch{{"index", at::arange(all, at::kLong)}}, std::move(sizes));
  data->tells_sizes = tells_sizes;
  return data;
}

}  // namespace levin::test
