// How the processes share the reading of loaders.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/loading/dispatched_loader.h"

namespace levin {

// The part of each process: the loader's own batch size is that of all together.
DataLoader Engine::split(const DataLoader& loader) const {
  DataLoaderOptions part = loader.options();
  LEVIN_CHECK(
      loader.dataset() != nullptr && part.batch_size % num_processes() == 0,
      "accelerator.split_batches",
      "batches of {} samples cannot be split over {} processes{}; set another batch_size, or "
      "split_batches = false",
      part.batch_size, num_processes(),
      loader.dataset() == nullptr ? " if they come from a stream" : "");
  part.batch_size /= num_processes();
  DataLoader own(loader.dataset(), std::move(part));
  own.load_state_dict(loader.state_dict());
  return own;
}

// For several devices of one process: the loader's own batch size is that of each.
DataLoader Engine::enlarged(const DataLoader& loader) const {
  const int64_t parts = placement_.parts();
  DataLoaderOptions whole = loader.options();
  if (options_.dataloader_config.split_batches) {
    LEVIN_CHECK(whole.batch_size % parts == 0, "accelerator.split_batches",
                "batches of {} samples cannot be split over {} devices; set another batch_size, or "
                "split_batches = false",
                whole.batch_size, parts);
    return loader;
  }
  LEVIN_CHECK(loader.dataset() != nullptr, "accelerator.batch_size",
              "batches of a stream cannot be made {} times as large, for as many devices; set "
              "batch_size to the total of all devices and split_batches = true",
              parts);
  whole.batch_size *= parts;
  DataLoader own(loader.dataset(), std::move(whole));
  own.load_state_dict(loader.state_dict());
  return own;
}

DataLoader Engine::prepare_loader(DataLoader loader, LoaderRole role) {
  const bool training = role == LoaderRole::kTraining;
  const bool even = training && options_.dataloader_config.even_batches;
  if (options_.dataloader_config.split_batches && num_processes() > 1) loader = split(loader);
  if (placement_.parts() > 1) loader = enlarged(loader);
  const DataSlice slice =
      options_.engine.use_distributed_sampler ? strategy_->slice() : DataSlice();
  if (options_.dataloader_config.dispatch_batches) {
    LEVIN_CHECK(slice.world_size == num_processes(), "accelerator.dispatch_batches",
                "dispatch_batches splits each batch over {} processes, but they should all read "
                "the same data; set dispatch_batches = false or use_distributed_sampler = true",
                num_processes());
    loader = dispatched(loader, world(), even);
  } else {
    // The order of samples is rank 0's; a data set of another size on some rank is an error.
    if (num_processes() > 1) loader.load_state_dict(broadcast_object(loader.state_dict()));
    loader.set_slice(slice, even);
    if (training && slice.world_size > 1 && !ranks_end_apart_) {
      loader.end_together([world = world(), joining = joining_](bool ended) mutable {
        return *joining ? ended : world.any(ended);
      });
    }
  }
  if (const auto seed = options_.dataloader_config.data_seed) {
    loader.load_state_dict(loader.state_dict().set("seed", *seed));
  }
  if (device_.is_cuda() && !loader.options().pin_memory.has_value()) loader.set_pin_memory(true);
  if (training) loaders_.push_back(loader);
  has_loader_ = true;
  return loader;
}

Joinable& Engine::joinable() {
  LEVIN_CHECK(synced_ == nullptr, "strategy.join",
              "synchronized batch norm needs a batch from every process in every step; set "
              "sync_batchnorm = false, or even_batches = true");
  auto* joinable = dynamic_cast<Joinable*>(strategy_.get());
  LEVIN_CHECK(joinable != nullptr, "strategy.join",
              "strategy '{}'{} needs the same number of batches on every rank; set even_batches = "
              "true, and leave out join_uneven_inputs if you call it",
              strategy_->name(), compiles() ? " with recorded steps" : "");
  joinable->check_join();
  return *joinable;
}

int64_t Engine::accumulation_for(const DataLoader& loader, int64_t given,
                                 std::string_view option) const {
  const int64_t wanted = options_.engine.train_batch_size;
  if (wanted == 0) return given;
  // With several devices of one process, the prepared loader's batch is that of all of them.
  const int64_t batch = loader.options().batch_size * num_processes();
  LEVIN_CHECK(
      given == 1 || given * batch == wanted, "accelerator.train_batch_size",
      "got train_batch_size = {} with {} = {}, but {} batches of {} samples on {} ranks are "
      "{} samples; leave one of the two out",
      wanted, option, given, given, loader.options().batch_size, num_processes(), given * batch);
  LEVIN_CHECK(wanted % batch == 0, "accelerator.train_batch_size",
              "got train_batch_size = {}, wanted a multiple of {}: {} ranks read batches of {} "
              "samples; change it, or the loader's batch_size",
              wanted, batch, num_processes(), loader.options().batch_size);
  return wanted / batch;
}

void Engine::synchronize_rng_states() {
  const auto asked = [&](std::string_view type) {
    return std::ranges::find(options_.rng_types, type) != options_.rng_types.end();
  };
  if (num_processes() == 1 || !(asked("torch") || asked("cuda"))) return;
  State own = random_state();
  own.set("device", int64_t{device_.index()});
  const State main = broadcast_object(own);
  if (asked("torch")) own.set("cpu", main.tensor("cpu"));
  if (asked("cuda") && device_.is_cuda()) {  // each process' own GPU may have another number
    const at::Tensor state = main.child("cuda").tensor(std::to_string(main.integer("device")));
    State cuda = own.child("cuda");
    own.set("cuda", cuda.set(std::to_string(device_.index()), state));
  }
  load_random_state(own);
}

void Engine::in_step(const std::function<void()>& draws) {
  const State own = random_state();
  if (num_processes() > 1) load_random_state(broadcast_object(own));
  draws();
  if (!is_main_process()) load_random_state(own);
}

at::Tensor Engine::to_device(const at::Tensor& rows) {
  note_batch_size(rows.dim() > 0 ? rows.size(0) : 0);
  const Batch there = for_step(placement_.to_device(Batch({{"rows", rows}})));
  loop_recording_.take_input(there);
  return there["rows"];
}

PreparedLoader Engine::prepared_loader(const DataLoader& loader) {
  DataLoader own = prepare_loader(loader, LoaderRole::kTraining);
  PreparedLoader::OnBatch check;
  if (!options_.dataloader_config.even_batches && num_processes() > 1 && own.dataset() != nullptr) {
    check = [this, joining = joining_](bool ended) {
      if (*joining) return;
      const at::Tensor left = at::full({1}, ended ? 0 : 1, at::kLong);
      const auto have_one = reduce(left, ReduceOp::kSum).item<int64_t>();
      LEVIN_CHECK(have_one == 0 || have_one == num_processes(), "accelerator.even_batches",
                  "only {} of {} processes have a batch left; set even_batches = true, or train in "
                  "join_uneven_inputs",
                  have_one, num_processes());
    };
  }
  const auto place = [this](const Batch& batch) {
    placement_.end_batch();  // the one before
    note_batch_size(batch.size());
    const Batch there = for_step(placement_.to_device(batch));
    loop_recording_.take_input(there);
    return there;
  };
  if (!is_accumulation_set_ && options_.engine.train_batch_size > 0) {
    is_accumulation_set_ = true;
    stepping_->set_accumulation_steps(
        accumulation_for(own, options_.accumulation_steps(), "gradient_accumulation_steps"));
  }
  return {std::move(own), place, in_use_, std::move(check), num_processes()};
}

void Engine::check_torch_loader() {
  has_loader_ = true;
  const DataLoaderConfiguration& data = options_.dataloader_config;
  const bool splits = num_processes() * placement_.parts() > 1;
  const std::initializer_list<std::pair<std::string_view, bool>> unheeded = {
      {"data_seed", data.data_seed.has_value()},
      {"train_batch_size", options_.engine.train_batch_size > 0},
      {"split_batches", splits && data.split_batches},
      {"dispatch_batches", splits && data.dispatch_batches},
      {"even_batches = false", splits && !data.even_batches},
      {"use_distributed_sampler = false", splits && !options_.engine.use_distributed_sampler}};
  for (const auto& [option, is_set] : unheeded) {
    LEVIN_CHECK(
        !is_set, "accelerator.torch_loader",
        "got {} with a loader of torch::data, which does not support it; give prepare a "
        "levin::DataLoader over levin::data::torch_dataset(dataset), or leave the option out",
        option);
  }
}

}  // namespace levin
