#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "levin/strategy/ddp/carrier.h"

namespace levin::ddp {
namespace {

/// A view into flat memory, laid out as that parameter is. Unlike a narrowed view it may be resized
/// and zeroed by whoever holds it as a gradient.
at::Tensor view_like(const at::Tensor& parameter, const at::Tensor& flat, int64_t offset) {
  at::Tensor view = at::empty({0}, flat.options());
  const int64_t start = flat.storage_offset() + offset;
  if (parameter.is_non_overlapping_and_dense()) {
    view.set_(flat.storage(), start, parameter.sizes(), parameter.strides());
  } else {
    view.set_(flat.storage(), start, parameter.sizes());
  }
  return view;
}

class PackedCarrier final : public Carrier {
 public:
  PackedCarrier(const comm::ProcessGroup& group, ReduceOp op) : Carrier(group, op) {}

  bool tells_used() const override { return true; }

  void lay_out(const std::vector<comm::BucketPlan>& plan) override {
    // Gradients may lie in the buckets that go.
    const std::vector<Place> before = std::exchange(places_, std::vector<Place>(types_.size()));
    buckets_.clear();
    for (const comm::BucketPlan& planned : plan) {
      Bucket& bucket = buckets_.emplace_back(made(planned));
      for (size_t i = 0; i < planned.members.size(); ++i) {
        const size_t index = planned.members[i];
        places_[index] = {buckets_.size() - 1, i,
                          view_like(parameters_[index], bucket.sent, planned.offsets[i])};
      }
    }
    for (size_t index = 0; index < before.size(); ++index) {
      if (before[index].view.defined() && lies_in(before[index].view, index)) put(index, false);
    }
  }

  /// The tensor that autograd made is let go of at once, and its memory serves the next layer.
  void put(size_t index, bool) override {
    const at::Tensor& view = places_[index].view;
    at::Tensor& gradient = gradient_of(index);
    if (!gradient.defined()) {
      view.zero_();
      return;
    }
    if (gradient.layout() != at::kStrided) {
      view.copy_(gradient.to_dense());
    } else if (gradient.const_data_ptr() != view.const_data_ptr()) {
      view.copy_(gradient);
    }
    if (!is_cast(index)) gradient = view;
  }

  void leave_out(size_t index) override {
    at::Tensor& gradient = gradient_of(index);
    if (lies_in(places_[index].view, index)) gradient = gradient.clone();
    places_[index].view.zero_();
  }

  at::Tensor put_aside(size_t index) override {
    const bool lies_here = lies_in(places_[index].view, index);
    at::Tensor gradient = std::exchange(gradient_of(index), at::Tensor());
    return lies_here ? gradient.clone() : gradient;
  }

  void start(size_t index, const std::vector<float>& used) override {
    Bucket& bucket = buckets_[index];
    bucket.used.copy_(at::tensor(used));
    bucket.work = group_.all_reduce(bucket.sent, op_, comm::Return::kAsync);
    if (bucket.sent.is_cpu()) return;
    bucket.used_work = group_.all_reduce(bucket.used, op_, comm::Return::kAsync);
  }

  void wait(size_t index) override {
    Bucket& bucket = buckets_[index];
    bucket.work.wait();
    bucket.used_work.wait();
    const at::Tensor used = bucket.used.to(at::kFloat);
    const float* counts = used.const_data_ptr<float>();
    bucket.counts.assign(counts, counts + used.numel());
  }

  bool take(size_t index, double scale) override {
    const Place& place = places_[index];
    if (buckets_[place.bucket].counts[place.member] == 0) return false;
    if (scale != 1) place.view.mul_(scale);
    if (is_cast(index)) {
      cast_back(index, place.view);
    } else {
      gradient_of(index) = place.view;
    }
    return true;
  }

 private:
  struct Bucket {
    at::Tensor sent;  ///< the gradients, and used behind them if that is one tensor
    at::Tensor used;  ///< a number a member: on how many ranks it was used; on the CPU
    comm::Work work;
    comm::Work used_work;  ///< the exchange of `used`, if it is not sent with the gradients
    std::vector<float> counts;
  };
  struct Place {
    size_t bucket = 0;
    size_t member = 0;
    at::Tensor view;
  };

  Bucket made(const comm::BucketPlan& plan) {
    const int64_t members = std::ssize(plan.members);
    const at::Device device = parameters_[plan.members.front()].device();
    Bucket bucket;
    if (device.is_cpu()) {
      bucket.sent = group_.allocate(plan.count + members, plan.type);
      bucket.used = bucket.sent.narrow(0, plan.count, members);
    } else {
      // Read by the process, which would have to wait for the GPU.
      bucket.sent = group_.allocate(plan.count, plan.type, device);
      bucket.used = group_.allocate(members, at::kFloat);
    }
    bucket.sent.zero_();
    return bucket;
  }

  bool lies_in(const at::Tensor& view, size_t index) const {
    const at::Tensor& gradient = gradient_of(index);
    return gradient.defined() && gradient.is_alias_of(view);
  }

  std::vector<Bucket> buckets_;
  std::vector<Place> places_;
};

}  // namespace

void Carrier::cast_back(size_t index, const at::Tensor& sum) const {
  at::Tensor& gradient = gradient_of(index);
  if (gradient.defined() && gradient.layout() == at::kStrided) {
    gradient.copy_(sum);
  } else {
    gradient = sum.to(parameters_[index].scalar_type());
  }
}

std::unique_ptr<Carrier> make_packed_carrier(const comm::ProcessGroup& group, ReduceOp op) {
  return std::make_unique<PackedCarrier>(group, op);
}

}  // namespace levin::ddp
