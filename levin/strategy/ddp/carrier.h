#pragma once
// Carrier: takes the gradients of a bucket to the other ranks and back. The reducer says when.
//
//   carrier->lay_out(plan);  carrier->put(index, false);  carrier->start(bucket, used);
//   carrier->wait(bucket);   carrier->take(index, 1.0);     // .grad is that of all ranks

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "levin/comm/collectives/bucket_plan.h"
#include "levin/comm/process_group.h"

namespace levin::ddp {

class Carrier {
 public:
  virtual ~Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  /// Returns whether a bucket tells in each backward on how many ranks a gradient was used. Else ranks agree
  /// on that in the first one.
  virtual bool tells_used() const = 0;
  /// Returns whether exchanges start while backward still runs.
  virtual bool overlaps() const { return true; }

  /// One more parameter, by the next index, and the type of its gradient on the way.
  void add(const at::Tensor& parameter, at::ScalarType type) {
    parameters_.push_back(parameter);
    types_.push_back(type);
  }
  /// Makes room for these buckets. No exchange is under way.
  virtual void lay_out(const std::vector<comm::BucketPlan>& plan) = 0;

  /// Puts the parameter's .grad, or zeros if it has none, into its bucket. is_new: autograd made it
  /// in this backward.
  virtual void put(size_t index, bool is_new) = 0;
  /// Leaves out a parameter that was frozen; its .grad stays.
  virtual void leave_out(size_t index) = 0;
  /// A gradient of an earlier backward leaves .grad, which the next one is to fill.
  virtual at::Tensor put_aside(size_t index) = 0;
  /// used: a number for each member, 1 where this rank has a gradient.
  virtual void start(size_t bucket, const std::vector<float>& used) = 0;
  virtual void wait(size_t bucket) = 0;
  /// After wait: sets .grad to the gradient of all ranks, times scale. Returns false and leaves
  /// .grad unchanged if no rank used it.
  virtual bool take(size_t index, double scale) = 0;

 protected:
  Carrier(comm::ProcessGroup group, ReduceOp op) : group_(std::move(group)), op_(op) {}

  at::Tensor& gradient_of(size_t index) const { return parameters_[index].mutable_grad(); }
  bool is_cast(size_t index) const { return types_[index] != parameters_[index].scalar_type(); }
  /// Casts a sum back that was exchanged in another dtype.
  void cast_back(size_t index, const at::Tensor& sum) const;

  comm::ProcessGroup group_;
  ReduceOp op_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::ScalarType> types_;  ///< on the way
};

/// Packs a bucket into memory that ranks may share; .grad is the place there from then on.
std::unique_ptr<Carrier> make_packed_carrier(const comm::ProcessGroup& group, ReduceOp op);

/// Sends gradients where they lie, by operators that a recording has as nodes.
/// overlaps: an all-reduce is a start and a wait; else one operator, as for XLA, which schedules by itself.
std::unique_ptr<Carrier> make_operator_carrier(const comm::ProcessGroup& group, ReduceOp op,
                                               bool overlaps);

}  // namespace levin::ddp
