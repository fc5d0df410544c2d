#include <ATen/ops/zeros_like.h>

#include "levin/comm/operators.h"
#include "levin/strategy/ddp/carrier.h"

namespace levin::ddp {
namespace {

class OperatorCarrier final : public Carrier {
 public:
  OperatorCarrier(const comm::ProcessGroup& group, ReduceOp op, bool overlaps)
      : Carrier(group, op), overlaps_(overlaps) {}

  bool tells_used() const override { return false; }
  bool overlaps() const override { return overlaps_; }

  void lay_out(const std::vector<comm::BucketPlan>& plan) override {
    members_.clear();
    for (const comm::BucketPlan& bucket : plan) members_.push_back(bucket.members);
    under_way_.assign(plan.size(), {});
    sent_.resize(types_.size());
  }

  void put(size_t index, bool is_new) override {
    sent_.resize(types_.size());  // before there is a plan
    at::Tensor& gradient = gradient_of(index);
    if (!gradient.defined()) {
      gradient = at::zeros_like(parameters_[index]);
    } else if (gradient.layout() != at::kStrided) {
      gradient = gradient.to_dense();
    } else if (is_new && overlaps_ && gradient.storage().use_count() > 1) {
      // Backward may read that memory later, for another parameter.
      gradient = gradient.clone();
    }
    sent_[index] = is_cast(index) ? gradient.to(types_[index]) : at::Tensor();
  }

  void leave_out(size_t) override {}

  at::Tensor put_aside(size_t index) override {
    return std::exchange(gradient_of(index), at::Tensor());
  }

  void start(size_t bucket, const std::vector<float>&) override {
    std::vector<at::Tensor> tensors;
    for (const size_t index : members_[bucket]) {
      tensors.push_back(is_cast(index) ? sent_[index] : gradient_of(index));
    }
    comm::call_all_reduce(tensors, group_, op_,
                          overlaps_ ? comm::Return::kAsync : comm::Return::kDone);
    if (overlaps_) under_way_[bucket] = std::move(tensors);
  }

  void wait(size_t bucket) override {
    if (overlaps_) comm::call_wait(std::exchange(under_way_[bucket], {}), group_);
  }

  bool take(size_t index, double) override {
    if (is_cast(index)) cast_back(index, std::exchange(sent_[index], at::Tensor()));
    return true;
  }

 private:
  bool overlaps_;
  std::vector<std::vector<size_t>> members_;        ///< members of each bucket
  std::vector<std::vector<at::Tensor>> under_way_;  ///< tensors of each bucket that was started
  std::vector<at::Tensor> sent_;                    ///< in another type, by index
};

}  // namespace

std::unique_ptr<Carrier> make_operator_carrier(const comm::ProcessGroup& group, ReduceOp op,
                                               bool overlaps) {
  return std::make_unique<OperatorCarrier>(group, op, overlaps);
}

}  // namespace levin::ddp
