#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "levin/base/check.h"
#include "levin/data/tools/tools_impl.h"

namespace levin::data {
namespace {

class SubsetDataset final : public Dataset {
 public:
  SubsetDataset(DatasetPtr dataset, std::vector<int64_t> indices)
      : dataset_(detail::checked_dataset(std::move(dataset))), indices_(std::move(indices)) {
    for (const int64_t index : indices_) check_index(index, dataset_->size());
  }

  int64_t size() const override { return std::ssize(indices_); }
  bool in_memory() const override { return dataset_->in_memory(); }
  Batch get(std::span<const int64_t> indices) const override {
    return dataset_->get(mapped(indices));
  }
  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override {
    return dataset_->draw(mapped(indices), context, std::move(reuse));
  }

 private:
  static void check_index(int64_t index, int64_t size) {
    LEVIN_CHECK(index >= 0 && index < size, "data.subset.index",
                "got index {} for a dataset of {} samples, wanted 0 <= index < {}", index, size,
                size);
  }

  std::vector<int64_t> mapped(std::span<const int64_t> indices) const {
    std::vector<int64_t> mapped;
    mapped.reserve(indices.size());
    for (const int64_t index : indices) {
      check_index(index, size());
      mapped.push_back(indices_[static_cast<size_t>(index)]);
    }
    return mapped;
  }

  DatasetPtr dataset_;
  std::vector<int64_t> indices_;
};

/// random_split of PyTorch: fractions are rounded down, and the rest is handed out in turn.
std::vector<int64_t> lengths_of(const std::vector<SplitLength>& lengths, int64_t size) {
  const auto num_fractions = std::ranges::count_if(lengths, &SplitLength::is_fraction);
  LEVIN_CHECK(!lengths.empty() && (num_fractions == 0 || num_fractions == std::ssize(lengths)),
              "data.split.lengths",
              "got {} lengths, {} of them fractions; give either numbers of samples or fractions",
              lengths.size(), num_fractions);
  double sum = 0;
  for (const SplitLength& length : lengths) {
    LEVIN_CHECK(length.value() >= 0, "data.split.lengths", "got the length {}, wanted 0 or more",
                length.value());
    sum += length.value();
  }
  constexpr double kRounding = 1e-9;  // math.isclose of Python
  LEVIN_CHECK(num_fractions == 0 ? sum == static_cast<double>(size) : std::abs(sum - 1) < kRounding,
              "data.split.lengths", "the {} have the sum {}, wanted {}",
              num_fractions == 0 ? "lengths" : "fractions", sum, num_fractions == 0 ? size : 1);
  std::vector<int64_t> counts;
  for (const SplitLength& length : lengths) {
    const double samples = num_fractions == 0
                               ? length.value()
                               : std::floor(static_cast<double>(size) * length.value());
    counts.push_back(static_cast<int64_t>(samples));
  }
  const int64_t rest = size - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (int64_t i = 0; i < rest; ++i) ++counts[static_cast<size_t>(i % std::ssize(counts))];
  return counts;
}

/// RandomState(seed).shuffle(range(size)) of NumPy: a Fisher-Yates shuffle whose bounded numbers
/// are drawn by rejection under a mask.
std::vector<int64_t> numpy_shuffle(int64_t size, uint32_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 narrow(seed);
  for (auto i = static_cast<uint64_t>(size) - 1; i > 0; --i) {
    const uint64_t mask = std::bit_ceil(i + 1) - 1;
    uint64_t drawn = 0;
    do {
      const uint64_t high = i > 0xffffffffULL ? static_cast<uint64_t>(narrow()) << 32 : 0;
      drawn = (high | narrow()) & mask;
    } while (drawn > i);
    std::swap(order[i], order[drawn]);
  }
  return order;
}

}  // namespace

DatasetPtr subset(DatasetPtr dataset, std::vector<int64_t> indices) {
  return std::make_shared<SubsetDataset>(std::move(dataset), std::move(indices));
}

std::vector<DatasetPtr> random_split(const DatasetPtr& dataset,
                                     const std::vector<SplitLength>& lengths, uint64_t seed) {
  const int64_t size = detail::checked_dataset(dataset)->size();
  const std::vector<int64_t> counts = lengths_of(lengths, size);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor order = at::randperm(size, generator, at::TensorOptions(at::kLong));
  const int64_t* next = order.const_data_ptr<int64_t>();
  std::vector<DatasetPtr> parts;
  for (const int64_t count : counts) {
    parts.push_back(subset(dataset, {next, next + count}));
    next += count;
  }
  return parts;
}

std::vector<Fold> k_fold(const DatasetPtr& dataset, KFoldOptions options) {
  const int64_t size = detail::checked_dataset(dataset)->size();
  const int64_t n_splits = options.n_splits;
  LEVIN_CHECK(n_splits >= 2 && n_splits <= size, "data.k_fold.splits",
              "got n_splits = {} for {} samples, wanted at least 2 and at most the number of "
              "samples",
              n_splits, size);
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (options.shuffle) order = numpy_shuffle(size, options.seed);
  std::vector<int64_t> fold_of(static_cast<size_t>(size));
  int64_t begin = 0;
  for (int64_t fold = 0; fold < n_splits; ++fold) {
    const int64_t end = begin + size / n_splits + (fold < size % n_splits ? 1 : 0);
    for (int64_t i = begin; i < end; ++i) {
      fold_of[static_cast<size_t>(order[static_cast<size_t>(i)])] = fold;
    }
    begin = end;
  }
  std::vector<Fold> folds;
  for (int64_t fold = 0; fold < n_splits; ++fold) {
    std::vector<int64_t> train, validation;
    for (int64_t i = 0; i < size; ++i) {
      (fold_of[static_cast<size_t>(i)] == fold ? validation : train).push_back(i);
    }
    folds.push_back({subset(dataset, std::move(train)), subset(dataset, std::move(validation))});
  }
  return folds;
}

}  // namespace levin::data
