#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/collate/gather.h"
#include "levin/data/sample_random.h"
#include "levin/data/tools/tools_impl.h"

namespace levin::detail {

DatasetPtr checked_dataset(DatasetPtr dataset) {
  LEVIN_CHECK(dataset != nullptr, "data.dataset.null", "got a null pointer, wanted a dataset");
  return dataset;
}

void MergedBatch::put(const Batch& part, std::span<const int64_t> places,
                      const std::string& source) {
  const bool is_first = batch_.empty();
  if (is_first) first_source_ = source;
  LEVIN_CHECK(part.size() == std::ssize(places), "data.samples.stack",
              "{} returned a batch of {} samples for {} indices; return one sample for each index",
              source, part.size(), places.size());
  LEVIN_CHECK(is_first || part.fields().size() == batch_.fields().size(), "data.samples.stack",
              "samples of {} have {} fields, but those of {} have {}; give all samples the same "
              "fields",
              source, part.fields().size(), first_source_, batch_.fields().size());
  const at::Tensor rows = at::from_blob(const_cast<int64_t*>(places.data()), {std::ssize(places)},
                                        at::TensorOptions(at::kLong));
  for (const auto& [name, tensor] : part) {
    at::DimVector sizes(tensor.sizes());
    LEVIN_CHECK(!sizes.empty() && sizes[0] == std::ssize(places), "data.samples.stack",
                "'{}' of {} has the shape {} in a batch of {} samples; give it the samples along "
                "dim 0",
                name, source, c10::str(tensor.sizes()), places.size());
    sizes[0] = size_;
    if (is_first) batch_.set(name, output_for(reuse_, name, sizes, tensor.scalar_type()));
    LEVIN_CHECK(batch_.contains(name), "data.samples.stack",
                "samples of {} have '{}', but those of {} do not; give all samples the same fields",
                source, name, first_source_);
    const at::Tensor& all = batch_[name];
    LEVIN_CHECK(all.sizes() == at::IntArrayRef(sizes) && all.scalar_type() == tensor.scalar_type(),
                "data.samples.stack",
                "'{}' of {} is {} {}, but of {} {} {}; give them one shape and dtype", name, source,
                c10::toString(tensor.scalar_type()), c10::str(tensor.sizes().slice(1)),
                first_source_, c10::toString(all.scalar_type()), c10::str(all.sizes().slice(1)));
    all.index_copy_(0, rows, tensor);
  }
}

}  // namespace levin::detail

namespace levin::data {
namespace {

/// A sample of a joined dataset.
struct JoinedSample {
  int64_t part;   ///< number of the dataset
  int64_t pass;   ///< how often the dataset was read before
  int64_t index;  ///< index in the dataset
};

class JoinedDataset : public Dataset {
 public:
  explicit JoinedDataset(std::vector<DatasetPtr> parts) : parts_(std::move(parts)) {
    LEVIN_CHECK(!parts_.empty(), "data.concat.empty", "got no datasets, wanted at least one");
    for (const DatasetPtr& part : parts_) detail::checked_dataset(part);
  }

  bool in_memory() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->in_memory(); });
  }
  Batch get(std::span<const int64_t> indices) const override { return draw(indices, {}, {}); }

  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override {
    struct Read {
      std::vector<int64_t> indices;
      std::vector<int64_t> places;
    };
    std::map<std::pair<int64_t, int64_t>, Read> reads;
    for (int64_t place = 0; place < std::ssize(indices); ++place) {
      const int64_t index = indices[static_cast<size_t>(place)];
      LEVIN_CHECK(index >= 0 && index < size(), "data.subset.index",
                  "got index {} for a dataset of {} samples, wanted 0 <= index < {}", index, size(),
                  size());
      const JoinedSample sample = locate(index);
      Read& read = reads[{sample.part, sample.pass}];
      read.indices.push_back(sample.index);
      read.places.push_back(place);
    }
    if (reads.size() == 1) {
      const auto& [key, read] = *reads.begin();
      return read_part(key.first, key.second, read.indices, context, std::move(reuse));
    }
    detail::MergedBatch merged(std::ssize(indices), std::move(reuse));
    for (const auto& [key, read] : reads) {
      merged.put(read_part(key.first, key.second, read.indices, context, {}), read.places,
                 "dataset " + std::to_string(key.first));
    }
    return merged.take();
  }

 protected:
  virtual JoinedSample locate(int64_t index) const = 0;
  const std::vector<DatasetPtr>& parts() const { return parts_; }

 private:
  /// Draws of the parts, and of each pass over one, would be the same if their indices are.
  Batch read_part(int64_t part, int64_t pass, std::span<const int64_t> indices, DrawContext context,
                  Batch reuse) const {
    const Dataset& dataset = *parts_[static_cast<size_t>(part)];
    if (part + pass > 0) {
      context.seed =
          derive_seed(context.seed, static_cast<uint64_t>(part) + 1, static_cast<uint64_t>(pass));
    }
    if (!detail::in_draw_scope()) return dataset.draw(indices, context, std::move(reuse));
    const detail::DrawScope draws(context, detail::DrawsOf::kBatch, indices);
    return dataset.draw(indices, context, std::move(reuse));
  }

  std::vector<DatasetPtr> parts_;
};

class ConcatDataset final : public JoinedDataset {
 public:
  explicit ConcatDataset(std::vector<DatasetPtr> parts) : JoinedDataset(std::move(parts)) {
    for (const DatasetPtr& part : this->parts()) {
      size_ += part->size();
      ends_.push_back(size_);
    }
  }

  int64_t size() const override { return size_; }

 private:
  JoinedSample locate(int64_t index) const override {
    const auto part = std::ranges::upper_bound(ends_, index) - ends_.begin();
    const int64_t begin = part == 0 ? 0 : ends_[static_cast<size_t>(part - 1)];
    return {part, 0, index - begin};
  }

  int64_t size_ = 0;
  std::vector<int64_t> ends_;  ///< index behind the last sample of each dataset
};

class MixtureDataset final : public JoinedDataset {
 public:
  MixtureDataset(std::vector<DatasetPtr> parts, const MixtureOptions& options)
      : JoinedDataset(std::move(parts)) {
    const auto& datasets = this->parts();
    LEVIN_CHECK(options.weights.size() == datasets.size(), "data.mixture.weights",
                "got {} weights for {} datasets, wanted one for each", options.weights.size(),
                datasets.size());
    for (size_t i = 0; i < datasets.size(); ++i) {
      LEVIN_CHECK(std::isfinite(options.weights[i]) && options.weights[i] > 0,
                  "data.mixture.weights", "got the weight {} for dataset {}, wanted one above 0",
                  options.weights[i], i);
      LEVIN_CHECK(datasets[i]->size() > 0, "data.mixture.weights",
                  "dataset {} has no samples; leave it out", i);
    }
    draw_order(options);
  }

  int64_t size() const override { return std::ssize(order_); }

 private:
  static constexpr int64_t kBlock = 1024;  // draws at a time

  void draw_order(const MixtureOptions& options) {
    const auto& datasets = parts();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(options.seed);
    const at::Tensor weights = at::tensor(options.weights, at::kDouble);
    std::vector<int64_t> read(datasets.size(), 0);  // samples read of each dataset
    size_t num_exhausted = 0;
    const size_t last = options.end == MixtureEnd::kFirstExhausted ? 1 : datasets.size();
    while (num_exhausted < last) {
      const at::Tensor drawn = at::multinomial(weights, kBlock, /*replacement=*/true, generator);
      const int64_t* part = drawn.const_data_ptr<int64_t>();
      for (int64_t i = 0; i < kBlock && num_exhausted < last; ++i) {
        const auto number = static_cast<size_t>(part[i]);
        const int64_t size = datasets[number]->size();
        order_.push_back({part[i], read[number] / size, read[number] % size});
        if (++read[number] == size) ++num_exhausted;
      }
    }
  }

  JoinedSample locate(int64_t index) const override { return order_[static_cast<size_t>(index)]; }

  std::vector<JoinedSample> order_;
};

}  // namespace

DatasetPtr concat(std::vector<DatasetPtr> datasets) {
  return std::make_shared<ConcatDataset>(std::move(datasets));
}

DatasetPtr mixture(std::vector<DatasetPtr> datasets, MixtureOptions options) {
  return std::make_shared<MixtureDataset>(std::move(datasets), options);
}

}  // namespace levin::data
