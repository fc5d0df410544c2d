// Strategies "fsdp" and "zero": parameters, gradients and optimizer state are sharded over the
// ranks, for modules that were not written for it.
//
// Ranks of one host keep one copy of the parameters, in memory that they share: each writes its own
// rows and reads all. Elsewhere a unit's parameters are gathered when an operator first touches them.
// Follows PyTorch's FSDP2 (fully_shard) and ZeRO (Rajbhandari et al. 2020).
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/console/explanation.h"
#include "levin/base/log.h"
#include "levin/comm/operators.h"
#include "levin/graph/compile/host_part.h"
#include "levin/graph/record/interposer.h"
#include "levin/strategy/backward.h"
#include "levin/strategy/ddp/agreement.h"
#include "levin/strategy/ddp/buffers.h"
#include "levin/strategy/fsdp/fsdp_mesh.h"
#include "levin/strategy/fsdp/gather/lazy_gather.h"
#include "levin/strategy/fsdp/gather/recorded_gather.h"
#include "levin/strategy/fsdp/gradients/gradients.h"
#include "levin/strategy/fsdp/hosts.h"
#include "levin/strategy/fsdp/sharded_modules.h"
#include "levin/strategy/presence.h"
#include "levin/strategy/strategies.h"

namespace levin {
namespace {

using fsdp::Gradients;
using fsdp::LazyGather;
using fsdp::Unit;

class Fsdp final : public Strategy, public Presence {
 public:
  Fsdp(std::string_view name, const StrategyContext& context)
      : Strategy(name, context.group),
        Presence(context.group, context.fsdp.gradient_reduction == "mean"),
        on_cpu_(!context.on_gpu),
        options_(context.fsdp),
        shares_(on_cpu_ && context.parameter_file == nullptr),
        hosts_(shares_ && options_.mesh.empty() ? fsdp::find_hosts(data_group()) : std::nullopt),
        group_(hosts_ ? hosts_->all : data_group()),
        mesh_(fsdp::fsdp_mesh(options_.mesh, group_)),
        shares_memory_(shares_ && fsdp::share_memory(fsdp::shard_group(mesh_))),
        sharded_(name, mesh_, hosts_ ? &*hosts_ : nullptr, shares_memory_, context.parameter_file,
                 options_),
        gather_(fsdp::shard_group(mesh_), gathered_bytes(name, options_)),
        recorded_gather_(gathered_bytes(name, options_)),
        by_operators_(context.recordable) {
    LEVIN_CHECK(!by_operators_ || on_cpu_, "strategy.fsdp.options",
                "strategy '{}' supports --compile replay on CPUs; on GPUs it is not there yet: "
                "leave it out, or set --strategy ddp",
                name);
  }

  /// Ends a strategy that was not released: after an error, or at the program's end. Other ranks
  /// cannot be asked for the missing rows then.
  ~Fsdp() override {
    if (units().empty() || !shares_memory()) return;
    try {
      if (std::exchange(publishing_, false)) published_.wait();
      make_whole();
    } catch (const std::exception& error) {
      log::warn("{}: parameters stay sharded: {}", name(), error.what());
    }
  }

  void setup(torch::nn::Module& module, at::Device device, InitValues values) override {
    ddp::check_same_tensors(group_, ddp::tensors_of(module));
    sharded_.shard(module, device, values, [this](Unit& unit, const fsdp::Resharding& resharding) {
      LEVIN_CHECK(
          !by_operators_ || resharding.near.size() == 1, "strategy.fsdp.options",
          "unit {} got reshard_after_forward = {}, but recorded steps gather over all ranks; "
          "set --fsdp-reshard-after-forward true or false, or --compile no",
          unit.name(), resharding.near.size());
      gather_.add(unit, resharding);
      recorded_gather_.add(unit, resharding.stays);
    });
    modules_.push_back(&module);
    buffers_ = ddp::Buffers(modules_);
    std::vector<Unit*> all;
    for (const auto& unit : units()) all.push_back(unit.get());
    gradients_.reset();
    gradients_ =
        std::make_unique<Gradients>(mesh_, all, sharded_.replicated(), options_, by_operators_);
    if (reduces_in_place()) gradients_->make_rings();
    group_.barrier();  // all rows are written
    sharded_.log_newest();
  }

  std::unique_ptr<ComputeScope> compute_scope() override {
    return std::make_unique<Scope>(*this, at::GradMode::is_enabled()
                                              ? LazyGather::Pass::kForward
                                              : LazyGather::Pass::kEvaluation);
  }

  bool backward(const at::Tensor& loss, bool synchronize, bool has_gradients) override {
    LEVIN_CHECK(loss.defined() || !by_operators_, "strategy.skipped_batch",
                "training_step returned no loss for the last batch of an accumulation window, but "
                "strategy '{}' needs one when steps are recorded; return a loss of weight 0 (see "
                "set_loss_weight), or set --compile no",
                name());
    return gather_.cache().named([&] {
      wait_gradients();
      if (synchronize) begin_exchange();
      return run_backward(loss, synchronize, has_gradients);
    });
  }

  void wait_gradients() override {
    if (gradients_ != nullptr && gradients_->is_pending()) had_gradients_ = gradients_->wait();
  }

  void update(optim::Optimizer& optimizer) override {
    gradients_->check_backward(name());
    wait_gradients();
    wake();
    gather_.cache().named([&] {
      on_rows([&] {
        optimizer.step();
        publish();
      });
      if (by_operators_) {
        buffers_.broadcast(group_);
      } else if (std::exchange(buffers_differ_, false)) {
        agree_on_buffers();
      }
    });
  }

  std::vector<NamedTensor> recorded_state() const override {
    std::vector<NamedTensor> full;
    if (!by_operators_ || !shares_memory()) return full;
    for (const auto& unit : units()) {
      for (const auto& parameter : unit->parameters()) {
        full.push_back({parameter->name() + " (full)", parameter->full().tensor()});
      }
    }
    return full;
  }

  /// Two units are under way: the next one, and the one whose gradients are reduced.
  RecordedPasses recorded_passes() const override {
    if (!by_operators_ || shares_memory() || fsdp::shard_group(mesh_).size() == 1) return {};
    int64_t largest = 0;
    for (const auto& unit : units()) largest = std::max(largest, unit->bytes());
    return {.bytes_under_way = 2 * largest};
  }

  std::vector<at::Tensor> exchange_memory() const override {
    return reduces_in_place() ? gradients_->exchange_memory() : std::vector<at::Tensor>();
  }

  void before_replay() override {
    if (!by_operators_ || group_.size() == 1) return;
    const graph::UnseenScope unseen;
    shares_memory() ? group_.barrier() : drop_gathered();
    note_values();
  }

  void after_recording() override {
    auto* recording = graph::HostPart::current();
    if (recording == nullptr || gradients_ == nullptr || !gradients_->accumulates()) return;
    recording->refuse(
        fmt::format("strategy '{}' adds up gradients over an accumulation window, and such steps "
                    "are not replayed "
                    "yet; set --accumulate-grad-batches 1, or --strategy ddp",
                    name()));
  }

  void check_join() const override {
    LEVIN_CHECK(
        !by_operators_, "strategy.fsdp.join",
        "strategy '{}' needs the same number of batches on all ranks when steps are recorded; "
        "set even_batches, or --compile no",
        name());
    LEVIN_CHECK(shares_memory() || fsdp::shard_group(mesh_).size() == 1, "strategy.fsdp.join",
                "strategy '{}' over {} all-gathers parameters in every forward pass, so all ranks "
                "need the same number of batches; set even_batches, or --backend shm",
                name(), group_.backend());
  }

 protected:
  void meet(Meeting meeting) override {
    if (meeting != Meeting::kEndEvaluation) by_operators_ ? before_replay() : settle();
    if (meeting == Meeting::kAgreeOnBuffers) buffers_.synchronize(group_);
    if (meeting == Meeting::kRest) rest();
    if (meeting == Meeting::kRelease) make_whole();
    if (meeting != Meeting::kEndEvaluation || group_.size() == 1) return;
    // A rank must not write to parameters while others still read them.
    shares_memory() ? group_.barrier() : gather_.end_evaluation();
  }

 private:
  void set_scale(double scale) override { gradients_->set_scale(scale); }
  void end_exchange() override { wait_gradients(); }
  void shadow_exchange() override {
    run_backward({}, /*synchronize=*/true, /*has_gradients=*/false);
  }

  /// As long as it lives, all units are full. A scope within another one adds nothing.
  class Scope final : public ComputeScope {
   public:
    Scope(Fsdp& strategy, LazyGather::Pass pass) : strategy_(strategy) {
      const bool is_outermost = strategy_.depth_ == 0;
      strategy_.enter(pass);
      if (!is_outermost) return;
      if (strategy_.gathers_by_operators(pass)) {
        sees_.emplace(strategy_.recorded_gather_);
      } else if (strategy_.looks_at_operators()) {
        sees_.emplace(strategy_.gather_);
      }
    }
    ~Scope() override { strategy_.leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Fsdp& strategy_;
    std::optional<graph::HandlerScope> sees_;
  };

  /// Calls it with parameters that are rows, also within a scope: a training_step that optimizes by
  /// itself updates them in the middle of what it computes.
  template <class Call>
  void on_rows(const Call& call) {
    if (depth_ == 0) return call();
    for (const auto& unit : units()) unit->end_pass();
    try {
      call();
      settle();
    } catch (...) {
      for (const auto& unit : units()) unit->begin_pass();
      throw;
    }
    for (const auto& unit : units()) unit->begin_pass();
  }

  static int64_t gathered_bytes(std::string_view name, const FsdpOptions& options) {
    if (name == "zero" && options.zero_stage < 3) return -1;
    return options.gathered_mb < 0 ? -1 : static_cast<int64_t>(options.gathered_mb * (1 << 20));
  }

  void enter(LazyGather::Pass pass) {
    if (depth_.fetch_add(1) > 0) return check_thread();
    thread_ = std::this_thread::get_id();
    gather_.begin(pass);
    size_t entered = 0;
    try {
      wake();
      sharded_.check_parameters();
      // Before a step that may be replayed, before_replay() has done it.
      if (!by_operators_ || pass == LazyGather::Pass::kEvaluation) settle();
      if (gathers_by_operators(pass)) recorded_gather_.begin();
      for (; entered < units().size(); ++entered) units()[entered]->begin_pass();
    } catch (...) {
      for (size_t i = 0; i < entered; ++i) units()[i]->end_pass();
      --depth_;
      throw;
    }
  }

  /// Ranks that share memory read it. Elsewhere a whole may be more than a rank can hold.
  void rest() {
    if (std::exchange(resting_, true)) return;
    for (const auto& unit : units()) unit->rest();
  }

  void wake() {
    if (!std::exchange(resting_, false)) return;
    for (const auto& unit : units()) unit->wake();
    if (shares_memory()) group_.barrier();  // others may have read what is written next
  }

  /// Parameters are full while the scope of the thread that began exists. LibTorch runs the
  /// backward of a GPU in threads of its own, for which that thread waits, and checkpointed blocks
  /// there run their forward passes again.
  void check_thread() {
    const bool is_of_backward = torch::autograd::get_current_graph_task_id() >= 0;
    if (is_of_backward || thread_.load() == std::this_thread::get_id()) return;
    --depth_;
    LEVIN_FAIL("strategy.fsdp.thread",
               "a thread began a forward pass of unit {} while another thread computes with it; "
               "under strategy '{}', run the forward passes of a module one after the other",
               units().empty() ? "" : units().front()->name(), name());
  }

  void leave() {
    if (depth_.fetch_sub(1) > 1) return;
    for (const auto& unit : units()) unit->end_pass();
  }

  /// Returns whether gathers of this pass are operators that a recording has as nodes. An evaluation is
  /// recorded only as a part of a compiled function.
  bool gathers_by_operators(LazyGather::Pass pass) const {
    if (!by_operators_ || shares_memory()) return false;
    return pass != LazyGather::Pass::kEvaluation || graph::HostPart::current() != nullptr;
  }

  void drop_gathered() {
    recorded_gather_.drop();
    gather_.drop();
  }

  /// Returns whether this pass watches operators. If nothing is gathered, a write to a parameter is
  /// found in the first passes, and later by the kernel, so later passes do without the watch.
  bool looks_at_operators() {
    constexpr int64_t kWatched = 8;
    return num_passes_++ < kWatched || gather_.gathers();
  }

  bool run_backward(const at::Tensor& loss, bool synchronize, bool has_gradients) {
    const Scope whole(*this, LazyGather::Pass::kBackward);
    gradients_->begin(synchronize);
    try {
      if (loss.defined()) {
        std::optional<detail::TensorMemoryScope> made_in_place;  // gradients of tensors on the CPU
        if (on_cpu_ && !by_operators_) made_in_place.emplace(*gradients_);
        levin::backward_as_planned(loss,
                                   [this](const auto& nodes) { gather_.plan_backward(nodes); });
      }
    } catch (...) {
      gradients_->abandon();
      throw;
    }
    if (!synchronize) {
      gradients_->keep();
      return loss.defined() || has_gradients;
    }
    gradients_->launch_rest(/*counts=*/loss.defined() || has_gradients);
    if (by_operators_ && shares_memory() && group_.size() > 1)
      meet_in_graph();  // others may still read what is updated next
    // In a loop that takes its steps without update() it is here that they agree.
    if (std::exchange(buffers_differ_, true) && !by_operators_) buffers_.synchronize(group_);
    wait_gradients();
    return loss.defined() || had_gradients_;
  }

  /// Other ranks may read what was written to the rows. All ranks call it.
  void publish() {
    note_values();
    if (by_operators_) return shares_memory() ? meet_in_graph() : drop_gathered();
    for (const auto& unit : units()) unit->memory().leave_memory();
    if (!shares_memory()) {
      gather_.drop();
      return gather_.learn_uses();
    }
    if (group_.size() > 1) {
      published_ = group_.all_reduce(token_, ReduceOp::kMax, comm::Return::kAsync);
      publishing_ = true;
    }
  }

  /// A node of a recording at which all ranks meet: what reads full values before it and after it
  /// stays there, as ranks write them in between.
  void meet_in_graph() {
    std::vector<at::Tensor> full;
    for (const auto& unit : units()) {
      for (const auto& parameter : unit->parameters()) full.push_back(parameter->full().tensor());
    }
    comm::call_barrier(full, group_);
  }

  /// Makes writes of all ranks readable: their update, and writes of code between steps (a callback,
  /// weight clipping), which runs on every rank.
  void settle() {
    if (std::exchange(publishing_, false)) published_.wait();
    bool is_written = false;
    for (const auto& unit : units()) is_written |= unit->is_written();
    if (!is_written) return;
    publish();
    if (std::exchange(publishing_, false)) published_.wait();
  }

  void note_values() {
    for (const auto& unit : units()) unit->note_values();
  }

  /// Says what an error of LibTorch outside of a forward pass means, where parameters are rows.
  std::string explain(std::string_view what) const {
    if (depth_ > 0) return "";
    for (const auto& unit : units()) {
      if (std::string text = unit->graph_of_rows(); !text.empty()) return text;
    }
    return sharded_.explain(what);
  }

  bool shares_memory() const { return shares_memory_; }
  /// Returns whether the gradients of a replay lie where the other ranks read them.
  bool reduces_in_place() const {
    return by_operators_ && shares_memory() && fsdp::shard_group(mesh_).size() > 1;
  }

  /// Makes the modules ordinary ones again. If nothing is shared all ranks call it.
  void make_whole() {
    gradients_.reset();
    if (!shares_memory()) gather_.drop();  // ranks may have gathered different units
    sharded_.undo();
  }

  const std::vector<std::unique_ptr<Unit>>& units() const { return sharded_.units(); }

  bool on_cpu_;
  FsdpOptions options_;
  bool shares_;  ///< the memory of parameters may be shared
  std::optional<fsdp::Hosts> hosts_;
  comm::ProcessGroup group_;  ///< all ranks, numbered as hosts_ does
  comm::DeviceMesh mesh_;
  bool shares_memory_;  ///< the ranks of a copy can map one memory
  fsdp::ShardedModules sharded_;
  std::vector<const torch::nn::Module*> modules_;
  std::unique_ptr<Gradients> gradients_;
  LazyGather gather_;
  fsdp::RecordedGather recorded_gather_;
  int64_t num_passes_ = 0;
  bool by_operators_;  ///< exchanges are operators, for recorded steps
  ddp::Buffers buffers_;
  bool buffers_differ_ = false;
  at::Tensor token_ = at::zeros({1});
  comm::Work published_;
  bool publishing_ = false;
  std::atomic<int64_t> depth_ = 0;
  std::atomic<std::thread::id> thread_ = {};  ///< the thread that computes
  bool resting_ = false;
  bool had_gradients_ = false;
  const levin::detail::Explanation of_torch_errors_{
      [this](std::string_view what) { return explain(what); }};
};

std::unique_ptr<Strategy> make(std::string_view name, const StrategyContext& context) {
  check_fsdp_options(context.fsdp);
  const std::string changed = changed_ddp_options(context.ddp);
  LEVIN_CHECK(
      changed.empty(), "strategy.fsdp.options",
      "strategy '{}' got {}, which apply to ddp only; leave them out, or set --strategy ddp", name,
      changed);
  LEVIN_CHECK(context.xla == nullptr, "strategy.fsdp.options",
              "strategy '{}' supports CPUs and GPUs, but the devices are XLA's; set --strategy xla",
              name);
  return std::make_unique<Fsdp>(name, context);
}

}  // namespace

std::unique_ptr<Strategy> make_fsdp(const StrategyContext& context) {
  LEVIN_CHECK(context.fsdp.zero_stage == FsdpOptions().zero_stage, "strategy.fsdp.options",
              "got --zero-stage {} with strategy fsdp, but it applies to strategy zero; set "
              "--strategy zero",
              context.fsdp.zero_stage);
  return make("fsdp", context);
}

std::unique_ptr<Strategy> make_zero(const StrategyContext& context) {
  const ReshardAfterForward& reshards = context.fsdp.reshard_after_forward;
  const bool frees = reshards.is_set() && to_text(reshards) != "false";
  LEVIN_CHECK(!frees || context.fsdp.zero_stage == 3, "strategy.fsdp.options",
              "got --fsdp-reshard-after-forward {} with --zero-stage {}, which keeps parameters "
              "unsharded in forward and backward; set --zero-stage 3, or leave it out",
              to_text(reshards), context.fsdp.zero_stage);
  return make("zero", context);
}

}  // namespace levin
