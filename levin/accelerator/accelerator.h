#pragma once
// Accelerator: for a training loop of your own, like Hugging Face Accelerate. It prepares modules,
// optimizers and data loaders for the device, the precision and the distributed strategy.
//
//   levin::Accelerator accelerator({.mixed_precision = "bf16"});
//   auto [model, optimizer, loader] = accelerator.prepare(net, optim::adamw({}), train_loader);
//   for (const auto& batch : loader) {
//     optimizer.zero_grad();
//     accelerator.backward(loss_of(model->forward(batch["x"]), batch["y"]));
//     optimizer.step();
//   }

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/compiled/compiled_function.h"
#include "levin/accelerator/options.h"
#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/prepared/prepared_loader.h"
#include "levin/accelerator/prepared/preparing.h"
#include "levin/accelerator/processes.h"
#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/loader.h"
#include "levin/module/optimizer_config.h"
#include "levin/observe/logger.h"
#include "levin/observe/profiler.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace levin {

class AutocastScope;
class Engine;
class Stepping;

namespace xla {
class Runtime;
}  // namespace xla

/// Enables autocast with the dtype of the run's mixed precision, in this thread, for the lifetime
/// of the object. It does nothing if the precision has no autocast.
class LEVIN_API AutocastGuard {
 public:
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  friend class Accelerator;
  AutocastGuard(const Engine& engine, const AutocastKwargs& kwargs);
  std::unique_ptr<AutocastScope> scope_;
};

/// Scope guard of accumulate() and no_sync(): its destructor ends the current batch of the
/// accumulation window, or turns gradient synchronization on again. It can be moved.
class LEVIN_API SteppingScope {
 public:
  /// Moves the scope; the moved-from object ends nothing.
  SteppingScope(SteppingScope&&) noexcept;
  SteppingScope& operator=(SteppingScope&&) = delete;
  ~SteppingScope();

 private:
  friend class Accelerator;
  SteppingScope(Stepping& stepping, void (*end)(Stepping&));
  Stepping* stepping_;
  void (*end_)(Stepping&);
};
using AccumulateScope = SteppingScope;  ///< returned by accumulate()
using NoSyncScope = SteppingScope;      ///< returned by no_sync()

/// The engine of a run: processes, device, precision, strategy and the state of training. Follows
/// accelerate.Accelerator. If the program was started without a launcher and several devices are
/// asked for, it starts one copy of itself for each device, waits for them, and exits when they
/// have ended. Code before the Accelerator runs in each of these processes, and also in the process
/// that started them.
class LEVIN_API Accelerator : public Processes {
 public:
  /// Starts or joins the processes of the run. Throws Error "accelerator.device" for a device that
  /// does not exist, "accelerator.devices" if the number of started processes differs from the
  /// options, "accelerator.precision", "accelerator.precision.device", "accelerator.accumulate",
  /// "accelerator.loss.policy", "accelerator.parallelism", "accelerator.train_batch_size",
  /// "optim.scaler.options", "strategy.name", and "comm.connect", "comm.backend" and other errors of
  /// comm::ProcessGroup::connect.
  Accelerator(AcceleratorOptions options = {});  // NOLINT: a call with braces reads as intended
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// Prepares any number of objects, in any order, and returns a std::tuple of them in that order.
  /// It accepts modules (holder or shared_ptr), torch::jit::Module (prepared as a JitModule),
  /// OptimizerConfig or a vector of them, and DataLoader. It also accepts optimizers and schedules
  /// of torch::optim and loaders of torch::data: as temporaries, as pointers (make_data_loader
  /// returns one), or as variables. A variable must outlive the prepared object. Modules are placed
  /// on the device before the optimizers are built. An optimizer may select parameters by name
  /// patterns (OptimizerConfig). With .of(module) a pattern matches the names within that module;
  /// without it and with several modules, names begin with the module's index among all prepared
  /// modules, from 0: "1.net.weight". Throws Error "accelerator.optimizer" for an optimizer that is
  /// bound neither by .of nor by a pattern while there are several modules, or is bound to a module
  /// that was not prepared; for an optimizer with a frequency above 1; for an OptimizerConfig of
  /// several optimizers; for optimizers that share a parameter under 16-mixed or gradient
  /// accumulation; and for an optimizer of torch::optim with master_weights. Throws
  /// "accelerator.module" for an empty holder or pointer and "optim.torch.parameters" for a
  /// torch::optim optimizer with parameters of no prepared module.
  template <class... Args>
  auto prepare(Args&&... args) {
    return detail::Preparing(*this)(detail::as_prepared(std::forward<Args>(args))...);
  }

  /// Prepares one module, like prepare(). Throws Error "accelerator.evaluation_mode" for that option
  /// on XLA devices.
  template <class Module>
  auto prepare_model(Module&& module, const PrepareModelOptions& options = {}) {
    return detail::Preparing(*this).model(detail::as_prepared(std::forward<Module>(module)),
                                          options.evaluation_mode);
  }

  /// Computes the gradients of a loss (a scalar), scaled as precision and gradient accumulation
  /// need. With synchronize = false they stay in this process, as in no_sync(). Throws Error
  /// "accelerator.loss" for a loss that has several elements, has no autograd graph, or depends on
  /// no prepared module, and "accelerator.loss.stop" (LossGuardOptions).
  void backward(const at::Tensor& loss, bool synchronize = true);
  /// Adds a batch to an accumulation window of gradient_accumulation_steps batches, for the
  /// lifetime of the returned object. Losses are divided by that number. The last batch of a window
  /// reduces gradients over the ranks and moves schedules; optimizers step and drop gradients only
  /// then. A prepared loader's last batch also ends an incomplete window (sync_with_dataloader);
  /// its gradients are the mean over its batches.
  [[nodiscard]] AccumulateScope accumulate();
  /// Same as accumulate(); the models are ignored.
  template <class... Models>
  [[nodiscard]] AccumulateScope accumulate(const Models&...) {
    return accumulate();
  }
  /// Returns whether gradients of this batch are reduced over the ranks and used by a step.
  bool sync_gradients() const;
  int64_t gradient_accumulation_steps() const;  ///< Batches of an accumulation window.
  /// Keeps gradients local to this process for the lifetime of the returned object.
  [[nodiscard]] NoSyncScope no_sync();
  /// Same as no_sync(); the models are ignored.
  template <class... Models>
  [[nodiscard]] NoSyncScope no_sync(const Models&...) {
    return no_sync();
  }
  /// All-reduces the gradients in the next backward(), also within no_sync() or an accumulation
  /// window, together with the gradients accumulated so far without an all-reduce.
  void trigger_sync_in_backward();
  /// Same as trigger_sync_in_backward(); the models are ignored.
  template <class... Models>
  void trigger_sync_in_backward(const Models&...) {
    trigger_sync_in_backward();
  }
  /// With EngineOptions::compile = "replay", records a training step (forward, backward, the
  /// optimizer's step, or some of these) and replays it in later calls (see
  /// graph/compile/compiled.h). Otherwise the function runs eagerly. Call the returned function
  /// inside the accumulate() scope.
  ///
  ///   auto step = accelerator.compile([&](const Batch& batch) {
  ///     optimizer.zero_grad();
  ///     const at::Tensor loss = loss_of(model->forward(batch["x"]), batch["y"]);
  ///     accelerator.backward(loss);
  ///     optimizer.step();
  ///     return loss;
  ///   });
  ///   for (const auto& batch : loader) step(batch);
  template <class Function>
  CompiledFunction<std::decay_t<Function>> compile(Function&& function) {
    return {*engine_, std::forward<Function>(function)};
  }
  /// Returns whether steps are recorded and replayed (compile = "replay"). XLA devices also compile
  /// steps without it; the step's code then runs each time.
  bool compiles() const;
  const AcceleratorOptions& options() const;  ///< The options of this run.
  /// Runs a training loop in which processes may run out of batches at different times, as in
  /// Accelerate: a process without batches takes part in the others' steps until the last one is
  /// done. Each iteration must have one backward that synchronizes and one step of each optimizer.
  /// Throws Error "strategy.join" with sync_batchnorm, strategy xla or compile = "replay".
  void join_uneven_inputs(const std::function<void()>& loop, const JoinOptions& options = {});
  /// Divides the gradients of all optimizers by the loss scale of 16-mixed, for code that reads the
  /// gradients. Clipping and step() do this themselves.
  void unscale_gradients();
  void unscale_gradients(const PreparedOptimizer& optimizer);  ///< Same for one optimizer.
  /// Returns whether an optimizer's last step changed no parameter (overflow, or LossGuardOptions).
  bool optimizer_step_was_skipped() const;
  /// Clips the gradient norm over the parameters of all prepared modules and returns the norm
  /// before clipping (optim::clip_grad_norm). Inside an incomplete accumulation window it does
  /// nothing and returns 0.
  at::Tensor clip_grad_norm(double max_norm, double norm_type = 2.0);
  /// Clips each gradient value to [-clip_value, clip_value]. Inside an incomplete accumulation
  /// window it does nothing.
  void clip_grad_value(double clip_value);
  /// Enables autocast for code outside model->forward (a loss), or disables it (enabled = false).
  AutocastGuard autocast(const AutocastKwargs& kwargs = {}) const { return {*engine_, kwargs}; }
  /// Profiles the operators of this process until the object is destroyed; each process writes a
  /// file.
  Profiler profile(ProfilerOptions options = {}) const {
    options.rank = process_index();
    return Profiler(std::move(options));
  }
  /// Applies the precision and strategy of model->forward to code that calls the module itself.
  ForwardScope forward_scope() const;
  /// Same as forward_scope() for evaluation, where ranks may have different numbers of batches:
  /// nothing in this scope waits for other ranks.
  ForwardScope evaluation_scope() const;

  /// Gathers the results of the current evaluation batch of every rank (samples in the first
  /// dimension), in the order of the data set, with each sample once; value holds the results
  /// of this rank's batch. All ranks call it equally often: a rank that has no batch left passes
  /// an empty tensor. Throws Error "accelerator.gather" for a scalar.
  at::Tensor gather_for_metrics(const at::Tensor& value);

  /// Saves everything that was prepared or registered (see Checkpoint) in a folder, and returns the
  /// folder. Without a path it makes the project's next numbered folder (ProjectConfiguration).
  /// Gradients are not saved. A save inside an accumulation window loses the gradients of the
  /// window so far, so save at the end of a window. The position in a loader of torch::data is not
  /// saved either; its epoch restarts (data::torch_dataset gives a loader that resumes). With
  /// async_save the files are written in the background. The checkpoint exists once poll_saves()
  /// has found it written, at the latest after finish_saves() or the next save_state, load_state or
  /// end_training. Throws the errors of save_checkpoint, and "accelerator.project".
  std::filesystem::path save_state(const std::filesystem::path& folder = {},
                                   const SaveCheckpointOptions& options = {});
  /// Number of the next folder of save_state() without a path. Throws Error "accelerator.project".
  int64_t save_iteration() const;
  /// Loads what save_state() saved, after the same prepare calls in the same order; without a path,
  /// the project's newest checkpoint. Afterwards there are no gradients and an accumulation window
  /// begins. Throws the errors of load_checkpoint, and "accelerator.project". If the state of an
  /// object does not fit, throws "accelerator.state" or that object's error; the objects before are
  /// loaded.
  void load_state(const std::filesystem::path& folder = {});
  /// Adds a hook that is called by save_state() with the checkpoint before it is written.
  void register_save_state_pre_hook(std::function<void(Checkpoint&)> hook);
  /// Adds a hook that is called by load_state() with the checkpoint that was read, before it is
  /// loaded.
  void register_load_state_pre_hook(std::function<void(const Checkpoint&)> hook);
  /// Saves only the weights: model.safetensors in the folder, or several files of at most
  /// max_shard_bytes with an index, in Hugging Face's format (save_sharded_weights). All processes
  /// write.
  template <class Model>
  void save_model(const Model& model, const std::filesystem::path& folder,
                  int64_t max_shard_bytes = int64_t{10} << 30) {
    save_model_state(state_of(*unwrap_model(model)), folder, max_shard_bytes);
  }
  /// Saves tensors to one file, which is replaced as a whole: in torch.save's format if its name
  /// ends in .pt, .pth or .bin, otherwise as safetensors (save_weights). The main process writes;
  /// with save_on_each_node, one process of each machine. Throws the errors of save_weights.
  void save(const State& tensors, const std::filesystem::path& file);
  /// Saves the full weights of a model; sharded parameters are gathered. In a file of torch.save's
  /// format tied weights appear under each of their names, so that Python's
  /// load_state_dict(strict=True) accepts them. All processes call it.
  template <class Module>
  void save(const PreparedModel<Module>& model, const std::filesystem::path& file) {
    save_module(*unwrap_model(model), file);
  }
  /// Returns the model's full parameters and buffers by name; sharded parameters are gathered
  /// (levin::full), so all processes call it. levin::module_state gives this rank's shards.
  template <class Model>
  State get_state_dict(const Model& model) {
    return full(*unwrap_model(model));
  }
  /// Returns the user's own module.
  template <class Module>
  std::shared_ptr<Module> unwrap_model(const PreparedModel<Module>& model) const {
    return model.unwrap();
  }
  /// Continues the loader's current epoch at batch num_batches, counted from the start of the
  /// epoch, for a loop that resumes by its own counter; later epochs are complete. A loader that is
  /// already at that batch, for example after load_state, does not move. If the epoch has no
  /// such batch, the next one begins.
  PreparedLoader skip_first_batches(PreparedLoader loader, int64_t num_batches);

  /// Opens the trackers of log_with, with logs under project_dir/project_name, and logs the config
  /// to them. init_kwargs has options of their loggers as text, by tracker and by the name in its
  /// options: {{"csv", {{"prefix", "a"}}}}. Throws Error "accelerator.log_with" for a tracker that
  /// is not in log_with or takes no options, and "base.options.unknown".
  void init_trackers(
      const std::string& project_name, const std::map<std::string, std::string>& config = {},
      const std::map<std::string, std::map<std::string, std::string>>& init_kwargs = {});
  /// Adds a tracker of your own; log() and end_training() use it too.
  void add_tracker(std::string name, std::shared_ptr<Logger> logger);
  /// Returns the tracker of that name; null in processes other than the main one. Throws Error
  /// "accelerator.tracker" if there is none.
  std::shared_ptr<Logger> get_tracker(const std::string& name) const;
  /// Logs values to all trackers, from the main process.
  void log(const Scalars& values, int64_t step);
  void end_training();  ///< Finishes asynchronous saves, then flushes and closes the trackers.
  /// Adds an object with state_dict() and load_state_dict(State) to save_state() and load_state().
  /// The object must outlive the Accelerator.
  template <class Stateful>
  void register_for_checkpointing(Stateful& object) {
    register_state([&object] { return object.state_dict(); },
                   [&object](const State& state) { object.load_state_dict(state); });
  }
  /// Returns what save_state() would write, to save it with other data. All ranks call it.
  Checkpoint state_dict();
  /// Loads what state_dict() returned. All ranks call it.
  void load_state_dict(const Checkpoint& checkpoint);
  /// Reads a checkpoint for load_state_dict(). Unlike load_checkpoint(), it reads only this
  /// process's rows of sharded parameters and their optimizer state.
  Checkpoint read_checkpoint(const std::filesystem::path& folder) const;

  at::Device device() const;  ///< Device of this process.
  /// Returns the XLA runtime if the accelerator is tpu or xla; otherwise nullptr.
  const std::shared_ptr<xla::Runtime>& xla() const;
  /// Prepares a loader for code that iterates over it itself. All ranks call it. With
  /// dispatch_batches the given loader is not changed. Throws Error "accelerator.dispatch_batches"
  /// for several processes with use_distributed_sampler = false.
  DataLoader prepare_loader(DataLoader loader, LoaderRole role);
  /// Completes an asynchronous save if its files are written. All ranks call it, between two steps.
  /// It throws the save's error.
  void poll_saves();
  /// Waits for an asynchronous save and completes it. All ranks call it, between two steps. It
  /// throws the save's error.
  void finish_saves();
  void free_memory();  ///< Releases modules, optimizers and loaders, so others can be prepared.
  void clear() { free_memory(); }  ///< Same as free_memory().

 private:
  template <class>
  friend class detail::Preparing;
  friend LEVIN_API Engine& engine_of(Accelerator& accelerator);

  explicit Accelerator(std::unique_ptr<Engine> engine);
  void prepare_module(const std::shared_ptr<torch::nn::Module>& module);
  void choose_strategy(const std::vector<OptimizerConfig>& configs);
  ForwardConditions place_for_evaluation(const std::shared_ptr<torch::nn::Module>& module);
  ForwardConditions forward_conditions() const;
  PreparedOptimizer prepare_optimizer(const OptimizerConfig& config);
  std::vector<PreparedOptimizer> prepare_own_optimizers(
      const std::vector<OptimizerConfig>& configs);
  PreparedOptimizer prepare_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);
  PreparedLoader prepared_loader(const DataLoader& loader);
  /// Throws Error "accelerator.torch_loader" for options that loaders of torch::data do not
  /// support.
  detail::TorchLoaderHooks prepare_torch_loader();
  using Save = std::function<State()>;
  using Load = std::function<void(const State&)>;
  Stepping& stepping();
  void register_schedule(Save save, Load load);
  void register_state(Save save, Load load);
  State state_of(const torch::nn::Module& module);
  void save_module(const torch::nn::Module& module, const std::filesystem::path& file);
  void save_model_state(const State& weights, const std::filesystem::path& folder,
                        int64_t max_shard_bytes);

  std::unique_ptr<Engine> engine_;
};

// LocalSGD: each process trains on its own, and every few steps parameters are averaged over the
// processes. Use it in a training loop of your own.
//
//   LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 8});
//   for (const auto& batch : loader) {
//     ...  // forward, backward, optimizer.step()
//     local_sgd.step();
//   }
//   local_sgd.end();

/// Keeps gradients local to each process until end(). Follows accelerate.local_sgd.LocalSGD (Stich
/// 2018).
class LEVIN_API LocalSGD {
 public:
  /// Throws Error "accelerator.local_sgd" for local_sgd_steps below 1 and for sharded parameters.
  template <class Module>
  LocalSGD(Accelerator& accelerator, const PreparedModel<Module>& model,
           const LocalSgdOptions& options = {})
      : LocalSGD(accelerator, std::shared_ptr<torch::nn::Module>(model.unwrap()), options) {}

  /// Counts a step; averages the parameters every local_sgd_steps steps. All processes call it.
  void step();
  /// Averages the parameters if steps were taken since the last average. Afterwards gradients are
  /// reduced over the processes in each step again.
  void end();

 private:
  LocalSGD(Accelerator& accelerator, std::shared_ptr<torch::nn::Module> module,
           const LocalSgdOptions& options);
  void average();

  Accelerator& accelerator_;
  std::shared_ptr<torch::nn::Module> module_;
  LocalSgdOptions options_;
  int64_t steps_ = 0;
  std::optional<NoSyncScope> no_sync_;
};

}  // namespace levin
