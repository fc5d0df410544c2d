#pragma once
// Gradients: reduce-scatters the gradients of a sharded strategy unit by unit while backward still
// runs. A gradient is made in, or copied into, one of a few buffers; each rank sums its own rows out of
// the buffers of all, and keeps only those. shard::GradientSlot has the states of one gradient.
//
//   gradients.begin(true);   levin::backward(loss);   gradients.launch_rest(false);
//   gradients.wait();        // .grad of each parameter is that of its rows

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "levin/base/memory/host_allocator.h"
#include "levin/comm/process_group.h"
#include "levin/strategy/fsdp/gradients/gradient_ring.h"
#include "levin/strategy/fsdp/gradients/replicated_gradients.h"
#include "levin/strategy/fsdp/unit.h"
#include "levin/strategy/options.h"
#include "levin/strategy/stray_gradients.h"

namespace levin::fsdp {

class Gradients final : public detail::TensorMemory {
 public:
  /// replicated: parameters that are in no unit and the same on every rank. by_operators: exchanges are
  /// operators that a recording has as nodes, and ranks agree once on which parameters they use. The
  /// units outlive the object.
  Gradients(const comm::DeviceMesh& mesh, const std::vector<Unit*>& units,
            std::vector<NamedTensor> replicated, const FsdpOptions& options, bool by_operators);
  ~Gradients() override;
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  /// Call it before a backward, in which parameters are full: puts the contents of .grad aside.
  /// Without synchronize, full gradients of this rank's batches add up. Throws Error
  /// "strategy.fsdp.gradients" if such a gradient was written to since.
  void begin(bool synchronize);
  /// Call it after a backward that does not synchronize: .grad becomes this rank's rows of its own
  /// batches' gradients.
  void keep();
  /// Call it after a backward that synchronizes: sends the remaining gradients. counts: gradients
  /// of earlier batches belong to this step.
  void launch_rest(bool counts);
  /// After launch_rest: .grad becomes the rows' gradient. Returns whether any rank had a gradient
  /// for any parameter.
  bool wait();
  /// Makes the buffers through which gradients go, or larger ones if more parameters are trained than
  /// before. begin() does, except by operators: there replays alone use them. All ranks call it together.
  void make_rings();
  std::vector<at::Tensor> exchange_memory() const;
  bool is_pending() const { return pending_; }
  /// Returns whether gradients of several batches have been added up, or will be.
  bool accumulates() const;
  /// Call it before an update: throws Error "strategy.backward.local" for gradients of another
  /// backward.
  void check_backward(std::string_view strategy) { stray_.check(strategy); }
  /// Call it after a backward that threw: drops all gradients.
  void abandon();
  /// Sets the factor of reduced gradients; 1 at first.
  void set_scale(double scale) { scale_ = scale; }

  /// During a backward that synchronizes: the place in a buffer of the next large gradient of that
  /// size, so that it need not be copied there.
  at::DataPtr allocate(size_t num_bytes) override;

 private:
  struct UnitGradients;
  using Arrivals = std::vector<std::pair<UnitGradients*, shard::ShardedParameter*>>;

  void plan(UnitGradients& unit);
  void arrived(UnitGradients& unit, shard::ShardedParameter& parameter);
  void fill(UnitGradients& unit, shard::ShardedParameter& parameter, const at::Tensor& gradient,
            bool adds = false);
  void launch_complete();
  void launch(UnitGradients& unit);
  /// Starts the all-reduce over replicas of units whose reduce-scatter was launched, but for the
  /// newest so many.
  void reduce_replicas(size_t newest);
  Arrivals arrivals_of_modules() const;
  /// Takes a buffer of the ring; none where all are held by units that wait for more gradients.
  void take_buffer(UnitGradients& unit);
  /// Moves what has arrived into memory that no tensor of others lies in.
  void leave_buffer(UnitGradients& unit);
  /// Waits for what is under way.
  void drain();
  void adopt(UnitGradients& unit, const double* used);
  void learn_order();
  ReduceOp reduction() const;
  /// gradients_recorded.cpp: the exchange by operators.
  void reduce_by_operators(UnitGradients& unit);
  void agree_on_use();

  comm::ProcessGroup group_;     ///< all ranks
  comm::ProcessGroup shards_;    ///< the ranks over which units are cut
  comm::ProcessGroup replicas_;  ///< the ranks that have the same rows
  FsdpOptions options_;
  bool by_operators_;
  std::vector<double> own_use_;     ///< by operators: flags of the first backward, of this rank
  std::vector<double> agreed_use_;  ///< and of all ranks
  std::vector<std::unique_ptr<UnitGradients>> units_;
  ReplicatedGradients replicated_;
  std::vector<size_t> order_;     ///< in which units are sent
  std::vector<size_t> complete_;  ///< in which they were complete in this backward
  std::map<at::ScalarType, GradientRing> rings_;
  std::vector<std::shared_ptr<comm::Work>> others_;  ///< exchanges of memory that is in no ring
  std::vector<UnitGradients*>
      scattered_;      ///< to be reduced over replicas, in the order of launches
  Arrivals arrivals_;  ///< large gradients in this backward, or in the last
  Arrivals expected_;  ///< in the one before
  /// On how many ranks each parameter was used, then what replicated_ exchanges.
  at::Tensor used_;
  comm::Work used_work_;
  size_t next_ = 0;  ///< in order_: to be sent
  bool synchronizing_ = false;
  bool pending_ = false;
  bool abandoned_ = false;  ///< things of a backward that threw may be under way
  bool learnt_ = false;
  bool adds_up_ = false;  ///< the last backward's gradients were added to those of an earlier one
  double scale_ = 1;
  StrayGradients stray_;
  std::shared_ptr<Gradients*> self_;  ///< held by the hooks; none once this is gone
};

}  // namespace levin::fsdp
