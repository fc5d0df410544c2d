// Saves and loads the state of the engine.

#include <ATen/ops/equal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/checkpoint_save.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/comm/objects.h"
#include "levin/module/base.h"
#include "levin/module/parameters.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {
namespace {

constexpr uint64_t kNewRankStream = 0x6e657772616e6b;  // "newrank"

std::string weights_name(size_t index) {
  return index == 0 ? "model" : "model_" + std::to_string(index);
}

/// Numbers items that give their state by a function.
template <class Registered>
State saved(const std::vector<Registered>& items) {
  State state;
  for (size_t i = 0; i < items.size(); ++i) state.set(std::to_string(i), items[i].save());
  return state;
}

template <class Items>
State numbered(const Items& items) {
  State state;
  for (size_t i = 0; i < items.size(); ++i) state.set(std::to_string(i), items[i].state_dict());
  return state;
}

/// The base models that the checkpoint leaves out, by the number of the module.
State states_of_bases(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  State all;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (State own = base_state(*modules[i]); !own.empty())
      all.set(std::to_string(i), std::move(own));
  }
  return all;
}

/// Names of tied weights that the files of weights leave out, by the number of the module.
State states_of_ties(const std::vector<std::shared_ptr<torch::nn::Module>>& modules) {
  State all;
  for (size_t i = 0; i < modules.size(); ++i) {
    State own;
    for (const auto& [other, first] : tied_names(*modules[i])) own.set(other, first);
    if (!own.empty()) all.set(std::to_string(i), std::move(own));
  }
  return all;
}

void check_count(std::string_view what, size_t saved, size_t here) {
  LEVIN_CHECK(saved == here, "accelerator.state",
              "the checkpoint holds {} {}, but {} are prepared; call load_state after preparing "
              "the same number",
              saved, what, here);
}

template <class Items>
void load_numbered(std::string_view what, Items& items, const State& state) {
  check_count(what, state.values().size(), items.size());
  for (size_t i = 0; i < items.size(); ++i)
    items[i].load_state_dict(state.child(std::to_string(i)));
}

}  // namespace

Checkpoint Engine::state_dict() {
  check_prepared();
  placement_.end_batch();
  Checkpoint checkpoint;
  for (size_t i = 0; i < modules_.size(); ++i) {
    checkpoint.weights[weights_name(i)] = trained_state(*modules_[i]);
  }
  checkpoint.training.set("optimizers", numbered(optimizers_))
      .set("loaders", numbered(loaders_))
      .set("random", random_state())
      .set("strategy", strategy_->state_dict())
      .set("stepping", stepping_->state_dict())
      .set("schedules", saved(schedules_))
      .set("registered", saved(registered_));
  checkpoint.training.set("processes", num_processes());
  if (State bases = states_of_bases(modules_); !bases.empty())
    checkpoint.training.set("bases", std::move(bases));
  if (State ties = states_of_ties(modules_); !ties.empty())
    checkpoint.training.set("tied", std::move(ties));
  add_states_of_ranks(checkpoint.training);
  return checkpoint;
}

// Rank 0's stand above, where one process finds its own. Beside them stands only what is another's
// and not the same, so that the files say as little as can be of how many ranks there were.
void Engine::add_states_of_ranks(State& training) {
  if (num_processes() == 1) return;
  State own;
  own.set("random", random_state()).set("loaders", numbered(loaders_));
  const std::vector<State> ranks = gather_object(own);
  const at::Tensor loaders_of_first = comm::bytes_of(ranks.front().child("loaders"));
  State random, loaders;
  for (size_t i = 1; i < ranks.size(); ++i) {
    random.set(std::to_string(i), ranks[i].child("random"));
    const State& places = ranks[i].child("loaders");
    if (at::equal(comm::bytes_of(places), loaders_of_first)) continue;
    loaders.set(std::to_string(i), places);
  }
  training.set("random_of_ranks", std::move(random));
  if (!loaders.empty()) training.set("loaders_of_ranks", std::move(loaders));
}

Checkpoint Engine::read_checkpoint(const std::filesystem::path& folder) const {
  const auto is_divided = [](const NamedTensor& parameter) {
    return shard::layout_of(parameter.tensor) != nullptr;
  };
  if (std::ranges::none_of(parameters_, is_divided)) return load_checkpoint(folder);
  std::unordered_map<std::string, at::Tensor> by_path;  // tensors of the training state
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    for (const auto& [name, tensor] : optimizers_[i].optimizer().parameters()) {
      by_path.emplace(fmt::format("optimizers/{}/optimizer/parameters/{}", i, name), tensor);
      by_path.emplace(fmt::format("waiting_gradients/{}/{}", i, name), tensor);
    }
  }
  // Also of what is kept for the parameter of that path: ".../exp_avg", ".../slots/exp_avg".
  const auto in_training = [&](std::string_view path,
                               const std::vector<int64_t>& sizes) -> std::optional<RowRange> {
    for (std::string prefix(path); !prefix.empty(); prefix.resize(prefix.rfind('/'))) {
      const auto found = by_path.find(prefix);
      if (found != by_path.end() && shard::whole_sizes(found->second) == sizes) {
        return rows_of(found->second);
      }
      if (prefix.find('/') == std::string::npos) break;
    }
    return std::nullopt;
  };
  CheckpointReader reader(folder);
  Checkpoint checkpoint{{}, reader.training(in_training)};
  for (const std::string& model : reader.models()) {
    std::unordered_map<std::string, at::Tensor> by_name;
    for (size_t i = 0; i < modules_.size(); ++i) {
      if (weights_name(i) != model) continue;
      for (const auto& [name, tensor] : levin::named_parameters(*modules_[i])) {
        by_name.emplace(name, tensor);
      }
    }
    checkpoint.weights[model] = reader.weights(
        model,
        [&](std::string_view name, const std::vector<int64_t>& sizes) -> std::optional<RowRange> {
          const auto found = by_name.find(std::string(name));
          const bool is_it = found != by_name.end() && shard::whole_sizes(found->second) == sizes;
          return is_it ? rows_of(found->second) : std::nullopt;
        });
  }
  return checkpoint;
}

void Engine::load_state_dict(const Checkpoint& checkpoint) {
  LEVIN_CHECK(!checkpoint.training.contains("weights_only"), "accelerator.weights_only",
              "the checkpoint has weights only (save_weights_only = true), so no run can resume "
              "from it; validate, test or predict with it, or resume from a full checkpoint");
  roll_back_to(checkpoint);
  load_loaders(checkpoint.training);
  load_random_states(checkpoint.training);
}

void Engine::roll_back_to(const Checkpoint& checkpoint) {
  check_count("modules", checkpoint.weights.size(), modules_.size());
  const State& training = checkpoint.training;
  const State registered = training.child("registered");
  const State schedules = training.contains("schedules") ? training.child("schedules") : State();
  check_count("registered objects", registered.values().size(), registered_.size());
  check_count("schedules of torch::optim", schedules.values().size(), schedules_.size());
  for (size_t i = 0; i < modules_.size(); ++i) {
    LEVIN_CHECK(checkpoint.weights.contains(weights_name(i)), "accelerator.state",
                "the checkpoint holds no weights named '{}'; load one that save_state wrote",
                weights_name(i));
  }
  for (size_t i = 0; i < modules_.size(); ++i) {
    const std::string number = std::to_string(i);
    if (training.contains("bases") && training.child("bases").contains(number))
      check_bases(*modules_[i], training.child("bases").child(number));
    load_module_state(*modules_[i], checkpoint.weights.at(weights_name(i)));
  }
  load_numbered("optimizers", optimizers_, training.child("optimizers"));
  for (size_t i = 0; i < schedules_.size(); ++i) {
    schedules_[i].load(schedules.child(std::to_string(i)));
  }
  for (size_t i = 0; i < registered_.size(); ++i) {
    registered_[i].load(registered.child(std::to_string(i)));
  }
  if (training.contains("strategy")) strategy_->load_state_dict(training.child("strategy"));
  if (training.contains("stepping")) stepping_->load_state_dict(training.child("stepping"));
  for (PreparedOptimizer& optimizer : optimizers_) optimizer.optimizer().zero_grad();
}

namespace {

/// Returns how many processes saved the state: each but the first has left its random generator.
int64_t processes_in(const State& training) {
  const bool has_others = training.contains("random_of_ranks");
  const int64_t generators =
      has_others ? std::ssize(training.child("random_of_ranks").values()) + 1 : 1;
  if (!training.contains("processes")) return generators;
  const int64_t processes = training.integer("processes");
  LEVIN_CHECK(processes == generators, "accelerator.state",
              "the checkpoint says that {} processes saved it, but it holds the random generators "
              "of {}; load another checkpoint",
              processes, generators);
  return processes;
}

/// Checks the number before it makes as many places as the state says.
void check_same_shards(const State& saved, const State& here) {
  if (!saved.contains("num_shards") || !here.contains("num_shards")) return;
  LEVIN_CHECK(
      saved.integer("num_shards") == here.integer("num_shards"), "data.loader.state",
      "the state is of a stream of {} shards, but this stream has {}; load it with the same data",
      saved.integer("num_shards"), here.integer("num_shards"));
}

}  // namespace

// Each rank of a stream has a place of its own; on another number of ranks they share what is left.
// For other data all ranks load rank 0's state.
void Engine::load_loaders(const State& training) {
  State states = training.child("loaders");
  const State others =
      training.contains("loaders_of_ranks") ? training.child("loaders_of_ranks") : State();
  const int64_t saved = processes_in(training);
  const bool same_number = saved == num_processes();
  const State here = numbered(loaders_);
  for (const auto& [number, value] : training.child("loaders").values()) {
    std::vector<State> ranks = {states.child(number)};
    for (int64_t rank = 1; rank < saved; ++rank) {
      const std::string name = std::to_string(rank);
      const bool has_own = others.contains(name);
      ranks.push_back((has_own ? others.child(name) : training.child("loaders")).child(number));
    }
    const State& own = ranks[same_number ? static_cast<size_t>(process_index()) : 0];
    if (!same_number) {
      if (here.contains(number)) check_same_shards(ranks.front(), here.child(number));
      states.set(number, DataLoader::merged_state(ranks));
    } else if (own.contains("rank")) {
      states.set(number, own);
    }
  }
  load_numbered("loaders", loaders_, states);
}

// Each rank that took part before resumes its own generator. A further rank gets one that follows
// from the run's seed, the step and its number: it differs from all others, and is the same
// whenever this checkpoint is loaded.
void Engine::load_random_states(const State& training) {
  const State others =
      training.contains("random_of_ranks") ? training.child("random_of_ranks") : State();
  load_random_state(training.child("random"));
  if (process_index() == 0) return;
  const std::string own = std::to_string(process_index());
  if (others.contains(own)) return load_random_state(others.child(own));
  int64_t step = 0;
  for (const PreparedOptimizer& optimizer : optimizers_) step += optimizer.num_updates();
  const auto of_run = static_cast<uint64_t>(current_seed());
  const uint64_t of_step = derive_seed(of_run, kNewRankStream, static_cast<uint64_t>(step));
  const uint64_t seed =
      derive_seed(of_step, kNewRankStream, static_cast<uint64_t>(process_index()));
  seed_everything(static_cast<int64_t>(seed >> 1));
}

void Engine::write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                              SaveCheckpointOptions options, SaveThen then) {
  options.save_on_each_node |= options_.project_config.save_on_each_node;
  finish_saves();
  if (options.async_save) return saves_.start(folder, checkpoint, options, std::move(then));
  CheckpointSave(folder, checkpoint, world(), options).finish();
}

void Engine::on_writers_or_throw(const std::function<void()>& body) {
  const bool each_node = options_.project_config.save_on_each_node;
  const bool writes = each_node ? is_local_main_process() : is_main_process();
  all_or_throw([&] {
    if (writes) body();
  });
}

}  // namespace levin
