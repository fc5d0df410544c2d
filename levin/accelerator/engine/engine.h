#pragma once
// Engine: what the Trainer and the Accelerator, its two doors, have in common. It puts data, modules, optimizers,
// precision and strategy together, and saves and loads all of them.
//
//   Engine engine(options);
//   engine.prepare_module(module);
//   std::vector<PreparedOptimizer> optimizers = engine.prepare_optimizers(configs);
//   engine.backward(loss);   optimizers[0].step();

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/accelerator/compiled/loop_recording.h"
#include "levin/accelerator/engine/batch_placement.h"
#include "levin/accelerator/engine/device.h"
#include "levin/accelerator/engine/process_settings.h"
#include "levin/accelerator/engine/world.h"
#include "levin/accelerator/options.h"
#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/prepared/prepared_loader.h"
#include "levin/accelerator/processes.h"
#include "levin/accelerator/project/project.h"
#include "levin/accelerator/project/trackers.h"
#include "levin/accelerator/stepping/forward_guards.h"
#include "levin/accelerator/stepping/precision.h"
#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/console/explanation.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/checkpoint/async_saves.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/loader.h"
#include "levin/graph/fake/fake_tensors.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/parameters.h"
#include "levin/strategy/strategy.h"

namespace levin {

class Accelerator;
class Engine;
namespace detail {
class AutomaticStrategy;
}  // namespace detail

LEVIN_API Engine& engine_of(Accelerator& accelerator);

/// The constructor may start the ranks of the run and throws what Accelerator's does.
class LEVIN_API Engine : public Processes {
 public:
  explicit Engine(const AcceleratorOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const AcceleratorOptions& options() const { return options_; }
  at::Device device() const { return device_; }
  /// Returns the runtime of --accelerator tpu and xla; else nullptr.
  const std::shared_ptr<xla::Runtime>& xla() const { return xla_; }
  const BatchPlacement& placement() const { return placement_; }
  const Precision& precision() const { return precision_; }
  Strategy& strategy() { return *strategy_; }
  Stepping& stepping() { return *stepping_; }
  const std::vector<std::shared_ptr<torch::nn::Module>>& modules() const { return modules_; }
  /// Returns the parameters of all modules. If there are several modules, names begin with the
  /// module's number.
  const std::vector<NamedTensor>& named_parameters() const { return parameters_; }
  /// Parameters, buffers and the optimizers' tensors.
  std::vector<NamedTensor> named_state() const;
  const std::vector<PreparedOptimizer>& optimizers() const { return optimizers_; }
  /// Another number whenever something else is prepared.
  int64_t generation() const { return generation_; }
  bool compiles() const { return options_.engine.compile != "no"; }

  // Preparing modules, optimizers and loaders.

  /// values: of a module that init_on_meta built; kNone where a checkpoint is about to be loaded.
  void prepare_module(const std::shared_ptr<torch::nn::Module>& module,
                      InitValues values = InitValues::kSeeded);
  /// Chooses the strategy, if it is auto and the run has several ranks, now that all modules are prepared and before
  /// their optimizers are. configs: empty if they are not known. batches: of an optimizer step. Call it before the
  /// strategy is given to others (forward_conditions). All ranks call it.
  void choose_strategy(const std::vector<OptimizerConfig>& configs, int64_t batches);
  /// total_steps: training steps of the run, -1 when not known; an optimizer's schedule gets as
  /// many of them as it steps at (OptimizerConfig::frequency).
  std::vector<PreparedOptimizer> prepare_optimizers(const std::vector<OptimizerConfig>& configs,
                                                    int64_t total_steps = -1,
                                                    int64_t total_epochs = -1);
  /// Prepares a loader. All ranks call it. With dispatch_batches see levin::dispatched; the given
  /// loader stays unchanged. Throws Error "accelerator.dispatch_batches" if ranks are to read the
  /// same.
  DataLoader prepare_loader(DataLoader loader, LoaderRole role);
  /// Streams that are prepared for training from now on may end on one rank before they end on another.
  void let_ranks_end_apart(bool apart) { ranks_end_apart_ = apart; }
  /// Returns the strategy of ranks that may have different numbers of batches. Throws Error
  /// "strategy.join" and "strategy.fsdp.join" if they need the same number.
  Joinable& joinable();
  /// Forgets the training loaders, which others replace: a checkpoint has the positions of the loaders
  /// that are prepared afterwards.
  void forget_loaders() { loaders_.clear(); }
  PreparedLoader prepared_loader(const DataLoader& loader);
  /// Returns the batches of an accumulation window: for train_batch_size with this prepared loader,
  /// or without it the given number, which the option of that name has. Throws Error
  /// "accelerator.train_batch_size" if they do not fit.
  int64_t accumulation_for(const DataLoader& loader, int64_t given, std::string_view option) const;
  /// Places a module that is only evaluated, see PrepareModelOptions. Throws Error
  /// "accelerator.evaluation_mode".
  ForwardConditions place_for_evaluation(const std::shared_ptr<torch::nn::Module>& module);
  /// Throws Error "accelerator.torch_loader" for what loaders of torch::data do not heed.
  void check_torch_loader();
  /// Throws Error "accelerator.parameters" for a trainable parameter that a prepared module did not
  /// have then. backward() asks at its calls 1, 2, 4, 8 and so on, state_dict() each time.
  void check_prepared() const;
  /// At a run's end, on all ranks: whoever reads a divided parameter sees the whole, or an error where it lies
  /// on several hosts.
  void rest();
  /// Forgets modules, optimizers and loaders, so that others can be prepared.
  void free_memory();

  // Scopes of forward passes, and backward.

  /// The calling thread runs model->forward under these until the object's end.
  ForwardGuards forward_guards() const {
    return {precision_, device_.type(), synced_.get(), strategy_.get()};
  }
  /// The same for evaluation, in which ranks may have other numbers of batches: nothing in it waits
  /// for them.
  ForwardGuards evaluation_guards() const {
    return {precision_, device_.type(), /*synced=*/nullptr, strategy_.get()};
  }
  /// The same for handles. synchronizes: batch norm is over all ranks where the options say so.
  ForwardConditions forward_conditions(bool synchronizes = true) const;
  /// See Accelerator::backward.
  void backward(const at::Tensor& loss, bool synchronize = true);

  // Saving and loading.

  /// See Accelerator. All ranks call them.
  Checkpoint state_dict();
  void load_state_dict(const Checkpoint& checkpoint);
  /// Loads modules, optimizers and schedules only: loaders and random generators stay where they
  /// are. For a rollback.
  void roll_back_to(const Checkpoint& checkpoint);
  Checkpoint read_checkpoint(const std::filesystem::path& folder) const;
  /// Writes a checkpoint; all ranks call it (CheckpointSave). With async_save it has begun when
  /// this returns, and `then` is called at its end, see AsyncSaves.
  void write_checkpoint(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                        SaveCheckpointOptions options = {}, SaveThen then = {});
  /// Ends an asynchronous save that is written, or waits for it. All ranks call them, between two
  /// steps; they throw what went wrong with it.
  void poll_saves() { saves_.poll(); }
  void finish_saves() { saves_.finish(); }
  AsyncSaves& saves() { return saves_; }

  // Hints about errors.

  /// Says, of an error of memory, the batch size and what helps (out_of_memory.h); empty for others. Where
  /// nobody catches the error, the same stands before it as the program ends, once.
  std::string memory_hint(const std::exception& error);
  /// Notes how many samples the next batch has, for memory_hint.
  void note_batch_size(int64_t samples) { batch_size_ = samples; }
  /// Returns the batch as the step gets it: without memory if the step is recorded so.
  Batch for_step(const Batch& batch) const;
  /// The same of a batch that no prepared loader gave: the recorded step knows its tensors.
  Batch taken_for_step(Batch batch);

 private:
  friend class Accelerator;  // it has the functions for users' own loops
  struct Registered {
    std::function<State()> save;
    std::function<void(const State&)> load;
  };

  Engine(const AcceleratorOptions& options, const comm::Environment& environment);
  Engine(const AcceleratorOptions& options, const comm::Environment& environment,
         at::Device device);
  void check_gradients();
  void after_step(const optim::Optimizer& optimizer);
  void warn_of_unused_options() const;
  void say_who_reads_what() const;
  void check_compile() const;
  /// Returns memory_hint of the exception that ends the program, once.
  std::string explanation();
  std::shared_ptr<Strategy> new_strategy();
  bool syncs_each_batch() const;
  void use_new_strategy();
  const std::shared_ptr<optim::StateMemory>& state_memory();
  /// Done by the process, or those of each machine, that write; what goes wrong there is thrown on
  /// every rank.
  void on_writers_or_throw(const std::function<void()>& body);
  DataLoader split(const DataLoader& loader) const;
  DataLoader enlarged(const DataLoader& loader) const;
  /// At the start of a loop over a loader.
  void synchronize_rng_states();
  /// Draws with the main process' random numbers on all ranks.
  void in_step(const std::function<void()>& draws);
  at::Tensor to_device(const at::Tensor& rows);
  void optimizers_changed();
  std::vector<NamedTensor> parameters_for(const OptimizerConfig& config) const;
  std::vector<NamedTensor> name_parameters() const;

  void seed_by_rank();
  void add_states_of_ranks(State& training);
  void load_random_states(const State& training);
  void load_loaders(const State& training);

  std::unique_ptr<detail::ProcessSettings> settings_;  // first: it goes last
  AcceleratorOptions options_;
  at::Device device_;
  std::shared_ptr<xla::Runtime> xla_;
  BatchPlacement placement_;
  Precision precision_;
  std::shared_ptr<comm::ProcessGroup> synced_;        // the world, where batch norm goes over it
  std::shared_ptr<optim::StateMemory> state_memory_;  ///< under --offload
  std::unique_ptr<detail::AutomaticStrategy> automatic_;  ///< of --strategy auto on several ranks
  std::shared_ptr<Strategy> strategy_;
  std::shared_ptr<Stepping> stepping_;  // optimizers that were prepared have it too
  bool seeded_by_rank_ = false;
  bool reaches_parameters_ = false;  ///< some loss gave a gradient to a prepared module
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<NamedTensor> parameters_;  // of all modules, prefixed by number if several
  std::vector<PreparedOptimizer> optimizers_;
  int64_t generation_ = 0;
  int64_t losses_ = 0;
  int64_t steps_ = 0;  ///< steps of all optimizers, without replayed ones
  bool has_loader_ = false;
  bool is_accumulation_set_ = false;  ///< train_batch_size has set it
  /// Writes what a forecast needs beside the step's graph, if `levin plan` asks for it.
  void describe() const;

  /// Set where the step is recorded without memory; the recording's scope lies within it.
  std::optional<graph::FakeScope> fake_;
  detail::LoopRecording loop_recording_;
  DdpOptions planned_ddp_;  ///< as the program gave them, for a forecast
  FsdpOptions planned_fsdp_;
  std::vector<DataLoader> loaders_;
  std::shared_ptr<detail::LoadersInUse> in_use_ =
      std::make_shared<detail::LoadersInUse>([this] { synchronize_rng_states(); });
  /// Processes may run out of batches at different times, as join_uneven_inputs makes up for.
  std::shared_ptr<bool> joining_ = std::make_shared<bool>(false);
  bool ranks_end_apart_ = false;
  std::vector<Registered> schedules_;  // registered schedulers of torch::optim
  std::vector<Registered> registered_;
  Project project_;
  Trackers trackers_;
  AsyncSaves saves_;
  std::vector<std::function<void(Checkpoint&)>> save_hooks_;
  std::vector<std::function<void(const Checkpoint&)>> load_hooks_;
  int64_t batch_size_ = 0;
  std::exception_ptr explained_;  ///< the error that memory_hint has spoken of
  const detail::Explanation of_memory_errors_{[this](std::string_view) { return explanation(); }};
};

}  // namespace levin
