#pragma once
// A fine-tuning of an adapter on a base that stays in its file: two ranks or one, broken off and gone on.

#include <filesystem>
#include <memory>
#include <string>

#include "levin/models/fine_tune/fine_tune.h"
#include "levin/models/lora.h"
#include "levin/module/parameters.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/models/small_models.h"
#include "tests/trainer/small_run.h"

namespace adapter_run {

namespace fs = std::filesystem;

/// The base's folder; a classifier of three classes trains whole beside the adapter.
inline void write_base(const fs::path& folder) {
  torch::manual_seed(8);
  levin::test::small(levin::test::small_bert(), "text-classification", {.num_labels = 3})
      ->save_pretrained(folder);
}

inline std::shared_ptr<levin::models::Pretrained> adapted(const fs::path& base, int64_t rank = 8) {
  auto net = levin::models::from_pretrained(base, {.activation_checkpointing = true});
  levin::lora::add(net, {.r = rank, .lora_dropout = 0.2, .target_modules = {"all-linear"}});
  return net;
}

inline levin::DataLoader loader(int64_t batch_size) {
  const at::Tensor ids =
      at::randint(3, 61, {32, 7}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{5}), at::kLong);
  return {levin::test::off_disk(levin::data::tensors(
              {{"input_ids", ids}, {"labels", ids.select(1, 0).remainder(3)}})),
          {.batch_size = batch_size, .shuffle = true}};
}

inline std::shared_ptr<levin::Module> module(std::shared_ptr<levin::models::Pretrained> net) {
  return levin::models::fine_tune(std::move(net), {.lr = 1e-2, .schedule = "constant"});
}

/// What a folder holds, in bytes.
inline uintmax_t bytes_in(const fs::path& folder) {
  uintmax_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace adapter_run
