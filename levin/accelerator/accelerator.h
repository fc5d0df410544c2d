#pragma once
// Accelerator: the engine. Puts data, module, optimizer, precision and strategy together.
// For people with a loop of their own; the Trainer is a loop over it too.
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
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "levin/accelerator/precision.h"
#include "levin/accelerator/prepared_loader.h"
#include "levin/accelerator/prepared_model.h"
#include "levin/accelerator/prepared_optimizer.h"
#include "levin/accelerator/world.h"
#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/base/rank.h"
#include "levin/base/state.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/loader.h"
#include "levin/module/optimizer_config.h"
#include "levin/strategy/strategy.h"

namespace levin {

struct AcceleratorOptions {
  std::string mixed_precision = "no";  ///< no (32-true) or bf16 (bf16-mixed)
  bool cpu = false;                    ///< the CPU even where there is a GPU
  std::string accelerator = "auto";    ///< auto, cpu, gpu (cuda): which kind of device
  std::string strategy = "auto";       ///< one of strategy_names()
  int64_t devices = 0;                 ///< processes on this machine; 0: as they were started, or 1
  int64_t num_nodes = 1;               ///< machines
  std::string backend =
      "auto";  ///< what carries the bytes: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi
  double comm_timeout_s = 1800;         ///< of one exchange between processes
  double comm_connect_timeout_s = 300;  ///< for all processes to come at the start
  bool comm_check = false;  ///< compare each exchange between GPUs first, as it is between CPUs
  bool use_distributed_sampler = true;  ///< processes read different parts of the data
  bool dispatch_batches = false;        ///< rank 0 alone reads the data and hands out the batches
  bool sync_batchnorm = false;          ///< batch norm over the batches of all processes
  DdpOptions ddp = {};

  LEVIN_API void fields(FieldVisitor& field);
};

/// Whether a loader feeds training (ranks get equal counts; of streams, whose ranks may have
/// different ones, the epoch ends on all as soon as it ends on one) or evaluation (no sample
/// repeats).
enum class LoaderRole { kTraining, kEvaluation };

struct JoinOptions {
  /// The mean of gradients is over all processes, also when some have none left.
  bool divide_by_initial_world_size = true;
};

/// A program that was started bare and is asked for several devices starts that many processes of
/// itself and ends with them: code before this runs in the first process too. Throws Error
/// "accelerator.device" for a device that is not here, "accelerator.devices" for other processes
/// than were started, "accelerator.precision", "strategy.name", and what
/// comm::ProcessGroup::connect throws.
class LEVIN_API Accelerator {
 public:
  Accelerator(AcceleratorOptions options = {});  // NOLINT: a call with braces reads as intended
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  /// Modules (holder or shared_ptr), OptimizerConfig (or a vector of them) and DataLoader, any
  /// number in any order; returns a std::tuple of what was prepared, in that order. Modules are
  /// placed before the optimizers are built. Patterns of an optimizer bound by .of(module) are over
  /// the names within that module; without .of, when there are several modules, names begin with
  /// the module's number, "1.net.weight". Throws Error "accelerator.optimizer" for an optimizer
  /// that is bound neither by .of nor by a pattern while there are several modules, or bound to
  /// none of them, and for several in one OptimizerConfig; "accelerator.module" for an empty holder
  /// or pointer.
  template <class... Args>
  auto prepare(Args&&... args) {
    (place(args), ...);
    return std::tuple(prepared(std::forward<Args>(args))...);
  }

  /// loss: a scalar. Throws Error "accelerator.loss" for one of several elements or without graph.
  void backward(const at::Tensor& loss, bool synchronize = true);
  /// Runs a training loop in which processes may run out of batches at different times: one that
  /// has goes on making the others' steps until the last is done. One backward that synchronizes
  /// and one step of every optimizer each turn. Throws Error "strategy.join". Follows Accelerate's
  /// function of that name.
  void join_uneven_inputs(const std::function<void()>& loop, const JoinOptions& options = {});
  /// Over the parameters of all prepared modules; returns the norm before (optim::clip_grad_norm).
  at::Tensor clip_grad_norm(double max_norm, double norm_type = 2.0);
  void clip_grad_value(double clip_value);
  /// Autocast for code beside model->forward, such as a loss that should run in it.
  AutocastGuard autocast() const { return AutocastGuard(precision_, device_.type()); }
  /// What model->forward runs under, for code that calls the module itself.
  ForwardScope forward_scope() const { return {precision_, device_.type(), synced_.get()}; }

  /// The ranks' values put together, on every rank.
  at::Tensor reduce(const at::Tensor& value, ReduceOp op);
  /// A tensor of the same shape on every rank, one behind the other along the first dimension.
  at::Tensor gather(const at::Tensor& value);
  /// What evaluation computed for each sample (the first dimension) of this rank's batch, for the
  /// batches of all ranks, in the order of the data set and each sample once. Every rank calls it
  /// for each of its batches; one that has none left gives an empty tensor.
  at::Tensor gather_for_metrics(const at::Tensor& value);
  std::vector<State> gather_object(const State& object) { return world_.all_gather(object); }
  State broadcast_object(const State& object) { return world_.broadcast(object, 0); }
  void wait_for_everyone() { world_.barrier(); }
  /// True on every rank as soon as it is on one.
  bool any(bool flag) { return world_.any(flag); }
  /// Rank 0's.
  bool from_main(bool flag);
  double from_main(double value);
  /// Runs it in one process of each machine; the others wait.
  void local_main_first(const std::function<void()>& body);

  /// All that was prepared or registered, in a folder (see Checkpoint); load_state takes it up in
  /// the same order of prepare calls. Throws what save_checkpoint and load_checkpoint throw, and
  /// "accelerator.state" or what load_state_dict of a part throws for a state of something else;
  /// the parts before that one have then been loaded.
  void save_state(const std::filesystem::path& folder);
  void load_state(const std::filesystem::path& folder);
  /// More to be saved: anything with state_dict() and load_state_dict(State). Must outlive this.
  template <class Stateful>
  void register_for_checkpointing(Stateful& object) {
    registered_.push_back({[&object] { return object.state_dict(); },
                           [&object](const State& state) { object.load_state_dict(state); }});
  }
  /// The same as values, for callers that save more beside it. All ranks call it.
  Checkpoint state_dict();
  void load_state_dict(const Checkpoint& checkpoint);

  at::Device device() const { return device_; }
  const Precision& precision() const { return precision_; }
  Strategy& strategy() { return *strategy_; }
  RankInfo rank() const { return rank_; }
  comm::ProcessGroup& world() { return world_; }
  bool is_main_process() const { return rank_.is_global_zero(); }

  // What prepare is made of.
  void prepare_module(const std::shared_ptr<torch::nn::Module>& module);
  /// total_steps: optimizer steps of the run for the schedule, -1 when not known.
  std::vector<PreparedOptimizer> prepare_optimizers(const std::vector<OptimizerConfig>& configs,
                                                    int64_t total_steps = -1);
  /// All ranks call it. With dispatch_batches see levin::dispatched, and the loader that is given
  /// stays as it is. Throws Error "accelerator.dispatch_batches" where ranks are to read the same.
  DataLoader prepare_loader(DataLoader loader, LoaderRole role);
  /// save_checkpoint by rank 0; what goes wrong there is thrown on every rank.
  void write_on_main(const std::filesystem::path& folder, const Checkpoint& checkpoint);
  /// Forgets modules, optimizers and loaders, so that others can be prepared.
  void free_memory();

 private:
  struct Registered {
    std::function<State()> save;
    std::function<void(const State&)> load;
  };

  template <class T>
  void place(T& argument) {
    if constexpr (is_module<std::remove_cv_t<T>>) prepare_module(pointer(argument));
  }
  template <class T>
  auto prepared(T&& argument) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (std::is_convertible_v<T, OptimizerConfig>) {
      return prepare_optimizer(OptimizerConfig(argument));
    } else if constexpr (std::is_same_v<Plain, std::vector<OptimizerConfig>>) {
      return prepare_optimizers(argument);
    } else if constexpr (std::is_same_v<Plain, DataLoader>) {
      return PreparedLoader(prepare_loader(argument, LoaderRole::kTraining), device_);
    } else {
      static_assert(is_module<Plain>,
                    "prepare takes torch::nn modules (holder or shared_ptr), OptimizerConfig, "
                    "std::vector<OptimizerConfig> and DataLoader");
      auto module = pointer(argument);
      return PreparedModel<typename decltype(module)::element_type>(module, precision_,
                                                                    device_.type(), synced_);
    }
  }
  template <class T>
  static constexpr bool is_module = requires(T& t) { static_cast<torch::nn::Module&>(*t); };
  template <class Holder>
  static auto pointer(Holder& holder) {
    if constexpr (requires { holder.ptr(); }) {
      using Pointer = std::remove_cvref_t<decltype(holder.ptr())>;
      return holder.is_empty() ? Pointer() : Pointer(holder.ptr());
    } else {
      return std::shared_ptr(holder);
    }
  }

  PreparedOptimizer prepare_optimizer(const OptimizerConfig& config);
  std::vector<NamedTensor> parameters_for(const OptimizerConfig& config) const;
  std::vector<NamedTensor> name_parameters() const;

  void seed_by_rank();
  void load_random_states(const State& training);
  void load_loaders(const State& training);

  AcceleratorOptions options_;
  comm::Environment environment_;
  RankInfo rank_;
  at::Device device_;
  Precision precision_;
  comm::ProcessGroup world_;
  std::shared_ptr<comm::ProcessGroup> synced_;  // the world, where batch norm goes over it
  std::unique_ptr<Strategy> strategy_;
  bool seeded_by_rank_ = false;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<NamedTensor> parameters_;  // of all modules, prefixed by number when several
  std::vector<PreparedOptimizer> optimizers_;
  std::vector<DataLoader> loaders_;
  /// Processes may run out of batches at different times, as join_uneven_inputs makes up for.
  std::shared_ptr<bool> joining_ = std::make_shared<bool>(false);
  std::vector<Registered> registered_;
};

}  // namespace levin
