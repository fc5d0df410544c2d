#pragma once
// Accelerator: training in a loop of your own, as with Hugging Face Accelerate. Puts data, module,
// optimizer, precision and strategy together.
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

struct AutocastKwargs {
  bool enabled = true;
  bool cache_enabled = true;  ///< parameters are cast once, until the outermost scope ends
};

/// Autocast as the precision has it, in this thread for the time of the object; nothing for a
/// precision without it.
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

/// Ends what it is for (a batch of an accumulation window, gradients that stay local) when it is destroyed. It can be
/// moved.
class [[nodiscard]] LEVIN_API SteppingScope {
 public:
  SteppingScope(SteppingScope&&) noexcept;
  SteppingScope& operator=(SteppingScope&&) = delete;
  ~SteppingScope();

 private:
  friend class Accelerator;
  SteppingScope(Stepping& stepping, void (*end)(Stepping&));
  Stepping* stepping_;
  void (*end_)(Stepping&);
};
using AccumulateScope = SteppingScope;
using NoSyncScope = SteppingScope;

struct JoinOptions {
  /// The mean of gradients is over all processes, also when some have none left.
  bool divide_by_initial_world_size = true;
};

/// A program that was started bare and is asked for several devices starts that many processes of
/// itself and ends with them: code before this runs in the first process too. Throws Error
/// "accelerator.device" for a device that is not here, "accelerator.devices" for other processes
/// than were started, "accelerator.precision", "accelerator.precision.device", "strategy.name",
/// what Stepping's constructor and comm::ProcessGroup::connect throw.
class LEVIN_API Accelerator : public Processes {
 public:
  Accelerator(AcceleratorOptions options = {});  // NOLINT: a call with braces reads as intended
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// Modules (holder or shared_ptr), OptimizerConfig (or a vector of them) and DataLoader; also optimizers and schedules
  /// of torch::optim and loaders of torch::data: variables, which must outlive what is returned, temporaries, or pointers
  /// to them (as make_data_loader gives). A torch::jit::Module is prepared as a JitModule. Any number in any order;
  /// returns a std::tuple of what was prepared, in that order. Modules are placed before the optimizers are built.
  /// Patterns of an optimizer bound by .of(module) are over the names within that module; without .of, when there are
  /// several modules, names begin with the module's number, "1.net.weight". Throws Error "accelerator.optimizer" for an
  /// optimizer that is bound neither by .of nor by a pattern while there are several modules, or bound to none of them,
  /// for one with a frequency, for several in one OptimizerConfig, and for several that share a parameter under 16-mixed
  /// or accumulation; "accelerator.module" for an empty holder or pointer, "optim.torch.parameters" for a torch::optim
  /// class over other parameters.
  template <class... Args>
  auto prepare(Args&&... args) {
    return detail::Preparing(*this)(detail::as_prepared(std::forward<Args>(args))...);
  }

  /// loss: a scalar. Throws Error "accelerator.loss" for one of several elements, without graph or of no prepared
  /// module, and "accelerator.loss.stop" (LossGuardOptions).
  void backward(const at::Tensor& loss, bool synchronize = true);
  /// Takes the next batch into an accumulation window of gradient_accumulation_steps, for the time of the object that it
  /// returns. Losses are divided by that number; optimizers step, drop their gradients and move their schedules at the
  /// last batch alone, where gradients agree over the ranks. The last batch of a prepared loader ends its window, whose
  /// gradients are then those of the batches that it has.
  [[nodiscard]] AccumulateScope accumulate();
  template <class... Models>
  [[nodiscard]] AccumulateScope accumulate(const Models&...) {
    return accumulate();
  }
  /// Whether this batch's gradients agree over the ranks and are stepped with.
  bool sync_gradients() const;
  int64_t gradient_accumulation_steps() const;
  /// For the time of the object gradients stay those of this process.
  [[nodiscard]] NoSyncScope no_sync();
  template <class... Models>
  [[nodiscard]] NoSyncScope no_sync(const Models&...) {
    return no_sync();
  }
  /// The next backward, also within no_sync or a window, ends with gradients that agree over the
  /// processes: those that were added up without it among them.
  void trigger_sync_in_backward();
  template <class... Models>
  void trigger_sync_in_backward(const Models&...) {
    trigger_sync_in_backward();
  }
  /// With EngineOptions::compile = "replay": a training step (forward, backward, the
  /// optimizer's step, any part of it) that is recorded and from then on replayed, as
  /// graph::Compiled says; else the function as it is. accumulate() stands around a call of it.
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
  /// Whether steps are recorded and replayed without a call. On XLA devices they are programs in
  /// either case: without it each is made of what the code does in that step.
  bool compiles() const;
  const AcceleratorOptions& options() const;
  /// Runs a training loop in which processes may run out of batches at different times: one that
  /// has goes on making the others' steps until the last is done. One backward that synchronizes
  /// and one step of every optimizer each turn. Throws Error "strategy.join". Follows Accelerate's
  /// function of that name.
  void join_uneven_inputs(const std::function<void()>& loop, const JoinOptions& options = {});
  /// Divides the gradients of that optimizer, or of all, by the loss scale of 16-mixed, for code
  /// that looks at them; clipping and stepping do it themselves.
  void unscale_gradients();
  void unscale_gradients(const PreparedOptimizer& optimizer);
  /// The last step of some optimizer changed nothing: gradients overflowed, or the loss was bad.
  bool optimizer_step_was_skipped() const;
  /// Over the parameters of all prepared modules; returns the norm before (optim::clip_grad_norm).
  /// Inside an accumulation window that is not complete they do nothing, and give 0.
  at::Tensor clip_grad_norm(double max_norm, double norm_type = 2.0);
  void clip_grad_value(double clip_value);
  /// Autocast for code beside model->forward, such as a loss that should run in it; not enabled:
  /// code within it that should not.
  AutocastGuard autocast(const AutocastKwargs& kwargs = {}) const { return {*engine_, kwargs}; }
  /// Records the operators of this process until the object's end; on each process a file.
  Profiler profile(ProfilerOptions options = {}) const {
    options.rank = process_index();
    return Profiler(std::move(options));
  }
  /// What model->forward runs under, for code that calls the module itself.
  ForwardScope forward_scope() const;
  /// The same for evaluation, in which ranks may have other numbers of batches: nothing in it waits
  /// for them.
  ForwardScope evaluation_scope() const;

  /// What evaluation computed for each sample (the first dimension) of this rank's batch, for the
  /// batches of all ranks, in the order of the data set and each sample once. Every rank calls it
  /// for each of its batches; one that has none left gives an empty tensor. Throws Error
  /// "accelerator.gather" for a scalar.
  at::Tensor gather_for_metrics(const at::Tensor& value);

  /// All that was prepared or registered, in a folder (see Checkpoint), which it returns; without a
  /// path the next of the project (ProjectConfiguration). Gradients are not in it: inside an accumulation
  /// window those of its batches so far are lost, so save where one has ended; after
  /// load_state there are none, and a window begins. The place of a loader of torch::data is not in
  /// it either: its epoch begins anew (data::torch_dataset gives a loader that goes on). load_state
  /// takes it up in the same order of prepare calls, without a path the project's newest. Throws
  /// what save_checkpoint and load_checkpoint throw, "accelerator.project", and "accelerator.state"
  /// or what load_state_dict of a part throws for a state of something else; the parts before that
  /// one have then been loaded. With async_save it is written behind the loop, and is there once
  /// poll_saves() has found it written, at the latest after finish_saves(), the next save_state,
  /// load_state or end_training.
  std::filesystem::path save_state(const std::filesystem::path& folder = {},
                                   const SaveCheckpointOptions& options = {});
  void load_state(const std::filesystem::path& folder = {});
  /// Called with what is about to be written, and with what was read and is about to be taken up.
  void register_save_state_pre_hook(std::function<void(Checkpoint&)> hook);
  void register_load_state_pre_hook(std::function<void(const Checkpoint&)> hook);
  /// The weights alone: model.safetensors in the folder, or several files of that size with their
  /// index, as Hugging Face's (save_sharded_weights). Written by all processes.
  template <class Model>
  void save_model(const Model& model, const std::filesystem::path& folder,
                  int64_t max_shard_bytes = int64_t{10} << 30) {
    save_model_state(get_state_dict(model), folder, max_shard_bytes);
  }
  /// Tensors as they are, in a file that is replaced as a whole: for .pt, .pth and .bin as torch.save writes it,
  /// else safetensors (save_weights). Written by the main process, by one of each machine with
  /// save_on_each_node. Throws what save_weights throws.
  void save(const State& tensors, const std::filesystem::path& file);
  /// The weights of a model, whole where they are divided over the processes; in a file of torch.save's format
  /// tied weights have each of their names, so that Python's load_state_dict(strict=True) takes them. All
  /// processes call it.
  template <class Module>
  void save(const PreparedModel<Module>& model, const std::filesystem::path& file) {
    save_module(*unwrap_model(model), file);
  }
  template <class Model>
  State get_state_dict(const Model& model) {
    return state_of(*unwrap_model(model));
  }
  /// The user's own module.
  template <class Module>
  std::shared_ptr<Module> unwrap_model(const PreparedModel<Module>& model) const {
    return model.unwrap();
  }
  /// The loader's running epoch from that batch on, counted from the epoch's start, for a loop that
  /// was resumed by its own count; later epochs are whole. A loader that stands there already, as
  /// load_state leaves it, stays; one whose epoch has ended begins the next.
  PreparedLoader skip_first_batches(PreparedLoader loader, int64_t num_batches);

  /// Trackers of log_with, under project_dir/project_name, and their common log.
  void init_trackers(const std::string& project_name,
                     const std::map<std::string, std::string>& config = {});
  void add_tracker(std::string name, std::shared_ptr<Logger> logger);
  /// Null in processes that are not the main one. Throws Error "accelerator.tracker".
  std::shared_ptr<Logger> get_tracker(const std::string& name) const;
  void log(const Scalars& values, int64_t step);
  void end_training();
  /// More to be saved: anything with state_dict() and load_state_dict(State). Must outlive this.
  template <class Stateful>
  void register_for_checkpointing(Stateful& object) {
    register_state([&object] { return object.state_dict(); },
                   [&object](const State& state) { object.load_state_dict(state); });
  }
  /// The same as values, for callers that save more beside it. All ranks call it.
  Checkpoint state_dict();
  void load_state_dict(const Checkpoint& checkpoint);
  /// For load_state_dict(): load_checkpoint(), but of parameters that are divided over ranks, and of
  /// what their optimizers keep, the rows of this process alone, which are then all that it reads.
  Checkpoint read_checkpoint(const std::filesystem::path& folder) const;

  at::Device device() const;
  /// Of --accelerator tpu and xla; else nullptr.
  const std::shared_ptr<xla::Runtime>& xla() const;
  /// For a loop that iterates the loader itself. All ranks call it. With dispatch_batches the loader that is given
  /// stays as it is. Throws Error "accelerator.dispatch_batches" where ranks are to read the same.
  DataLoader prepare_loader(DataLoader loader, LoaderRole role);
  /// Ends an asynchronous save that is written, or waits for it. All ranks call them, between two
  /// steps; they throw what went wrong with it.
  void poll_saves();
  void finish_saves();
  /// Forgets modules, optimizers and loaders, so that others can be prepared.
  void free_memory();
  void clear() { free_memory(); }

 private:
  template <class>
  friend class detail::Preparing;
  friend LEVIN_API Engine& engine_of(Accelerator& accelerator);

  explicit Accelerator(std::unique_ptr<Engine> engine);
  void prepare_module(const std::shared_ptr<torch::nn::Module>& module);
  ForwardConditions forward_conditions() const;
  PreparedOptimizer prepare_optimizer(const OptimizerConfig& config);
  std::vector<PreparedOptimizer> prepare_own_optimizers(
      const std::vector<OptimizerConfig>& configs);
  PreparedOptimizer prepare_torch_optimizer(std::shared_ptr<torch::optim::Optimizer> optimizer);
  PreparedLoader prepared_loader(const DataLoader& loader);
  /// Throws Error "accelerator.torch_loader" for what loaders of torch::data do not heed.
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

// LocalSGD: each process steps for itself, and every few steps they take the mean of their
// parameters. For a loop of one's own, around its steps.
//
//   LocalSGD local_sgd(accelerator, model, {.local_sgd_steps = 8});
//   for (const auto& batch : loader) {
//     ...
//     optimizer.step();
//     local_sgd.step();
//   }
//   local_sgd.end();

struct LocalSgdOptions {
  int64_t local_sgd_steps = 8;  ///< steps from one mean to the next
  bool enabled = true;
};

/// Until end() gradients stay those of each process. Follows accelerate.local_sgd.LocalSGD (Stich
/// 2018). Throws Error "accelerator.local_sgd".
class LEVIN_API LocalSGD {
 public:
  template <class Module>
  LocalSGD(Accelerator& accelerator, const PreparedModel<Module>& model,
           const LocalSgdOptions& options = {})
      : LocalSGD(accelerator, std::shared_ptr<torch::nn::Module>(model.unwrap()), options) {}

  /// After each optimizer step, by all processes.
  void step();
  /// Takes the mean once more; gradients are those of all processes again.
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
