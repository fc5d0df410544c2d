// Images a second that a DataLoader hands to a consumer who does nothing with them: 60,000 uint8
// 1x28x28 images, normalised to float, with their labels, batch 64, shuffled; 0, 1 and 2 workers.
#include "levin/data/loader.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <benchmark/benchmark.h>

#include "levin/data/sources/sources.h"

namespace {

constexpr int64_t kImages = 60'000;
constexpr int64_t kBatch = 64;

levin::DatasetPtr images(std::vector<levin::data::Normalize> normalize) {
  return levin::data::tensors({{"image", at::randint(256, {kImages, 1, 28, 28}, at::kByte)},
                               {"label", at::randint(10, {kImages}, at::kLong)}},
                              std::move(normalize));
}

void epochs(benchmark::State& state, const levin::DatasetPtr& dataset) {
  at::set_num_threads(1);
  levin::DataLoader loader(dataset,
                           {.batch_size = kBatch, .shuffle = true, .num_workers = state.range(0)});
  for (auto _ : state) {
    for (const auto& batch : loader) benchmark::DoNotOptimize(batch["image"].const_data_ptr());
  }
  state.SetItemsProcessed(state.iterations() * kImages);
}

void normalized_images(benchmark::State& state) {
  epochs(state, images({{.field = "image", .mean = 0.2860, .std = 0.3530}}));
}

/// The same bytes in, a quarter of the bytes out: what normalising costs is the difference.
void raw_images(benchmark::State& state) { epochs(state, images({})); }

BENCHMARK(normalized_images)->Arg(0)->Arg(1)->Arg(2)->ArgName("workers")->UseRealTime();
BENCHMARK(raw_images)->Arg(0)->Arg(1)->Arg(2)->ArgName("workers")->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
