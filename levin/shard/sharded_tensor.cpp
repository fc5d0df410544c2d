#include "levin/shard/sharded_tensor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <ostream>

#include "levin/base/check.h"
#include "levin/base/state.h"
#include "levin/shard/exchange.h"
#include "levin/shard/plan.h"

namespace levin::shard {
namespace {

/// Below this a second all_to_all costs more than the bytes that it saves.
constexpr int64_t kWorthAnotherCall = 64 << 10;

std::vector<Placement> replicated(const comm::DeviceMesh& mesh) {
  return std::vector<Placement>(mesh.axes().size(), Replicate{});
}

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  const int64_t* first = tensor.const_data_ptr<int64_t>();
  return {first, first + tensor.numel()};
}

/// Returns sizes and type of rank 0's tensor, on every rank; "type" is absent if it is undefined.
State description_of(const at::Tensor& whole, comm::ProcessGroup& group) {
  State description;
  if (group.rank() == 0 && whole.defined()) {
    description.set("type", static_cast<int64_t>(whole.scalar_type()));
    description.set("sizes", at::tensor(whole.sizes(), at::kLong));
  }
  return group.broadcast(description, 0);
}

ShardedTensor from_rank_zero(const at::Tensor& whole, const comm::DeviceMesh& mesh,
                             std::vector<Placement> placements) {
  const State description = description_of(whole, mesh.flat());
  LEVIN_CHECK(description.contains("type"), "shard.local",
              "got an undefined tensor on rank 0, wanted the full tensor there");
  const auto type = static_cast<at::ScalarType>(description.integer("type"));
  Layout layout(numbers_of(description.tensor("sizes")), mesh.shape(), std::move(placements));
  at::Tensor own = whole;
  if (mesh.rank() != 0) {
    own =
        at::empty({0}, at::TensorOptions(type).device(whole.defined() ? whole.device() : at::kCPU));
  }
  return ShardedTensor::from_local(exchange(plan_from_first(layout), own, mesh.flat()), mesh,
                                   layout);
}

/// The slice that each rank asks for. The ranks exchange their counts of numbers first, so that all
/// see which rank has too many or too few.
std::vector<Slice> slices_of_all(const Layout& layout, const Slice& own,
                                 comm::ProcessGroup& group) {
  const size_t num_dims = layout.sizes().size();
  std::vector<int64_t> mine = {std::ssize(own.offsets), std::ssize(own.sizes)};
  for (const auto* numbers : {&own.offsets, &own.sizes}) {
    for (size_t i = 0; i < num_dims; ++i) mine.push_back(i < numbers->size() ? (*numbers)[i] : 0);
  }
  const at::Tensor all = at::empty({group.size(), std::ssize(mine)}, at::kLong);
  group.all_gather(all, at::tensor(mine, at::kLong));
  std::vector<Slice> slices;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const std::vector<int64_t> theirs = numbers_of(all[rank]);
    const auto offsets = theirs.begin() + 2;
    const auto sizes = offsets + static_cast<int64_t>(num_dims);
    slices.push_back({{offsets, sizes}, {sizes, theirs.end()}});
    slices.back().offsets.resize(static_cast<size_t>(theirs[0]));
    slices.back().sizes.resize(static_cast<size_t>(theirs[1]));
  }
  return slices;
}

}  // namespace

ShardedTensor::ShardedTensor(at::Tensor local, comm::DeviceMesh mesh, Layout layout)
    : local_(std::move(local)), mesh_(std::move(mesh)), layout_(std::move(layout)) {}

ShardedTensor ShardedTensor::from_local(at::Tensor local, comm::DeviceMesh mesh, Layout layout) {
  LEVIN_CHECK(layout.mesh() == mesh.shape(), "shard.mesh",
              "got {} with the device mesh {}; the layout and the device mesh must have equal axes",
              to_text(layout), to_text(mesh.shape()));
  const Slice slice = layout.slice(mesh.rank());
  LEVIN_CHECK(local.defined() && local.sizes() == at::IntArrayRef(slice.sizes), "shard.local",
              "got {} as the shard of rank {} of {}, wanted sizes {}",
              local.defined() ? c10::str("sizes ", local.sizes()) : "an undefined tensor",
              mesh.rank(), to_text(layout), c10::str(at::IntArrayRef(slice.sizes)));
  return {local.detach(), std::move(mesh), std::move(layout)};
}

ShardedTensor ShardedTensor::moved(const comm::DeviceMesh& mesh, const Layout& to) const {
  const Plan plan = plan_redistribute(layout_, to);
  return {exchange(plan, local_, mesh_.flat()), mesh, to};
}

at::Tensor ShardedTensor::full() const { return redistribute(replicated(mesh_)).local_; }

ShardedTensor ShardedTensor::redistribute(std::vector<Placement> placements) const {
  return redistribute(mesh_, std::move(placements));
}

ShardedTensor ShardedTensor::redistribute(const comm::DeviceMesh& mesh,
                                          std::vector<Placement> placements) const {
  LEVIN_CHECK(mesh.flat().global_ranks() == mesh_.flat().global_ranks(), "shard.mesh",
              "cannot redistribute from the mesh {} to {}, wanted the same ranks in the same order",
              to_text(mesh_.shape()), to_text(mesh.shape()));
  const Layout to(sizes(), mesh.shape(), std::move(placements));
  const bool is_large = layout_.numel() * local_.element_size() >= kWorthAnotherCall;
  if (const auto between = is_large ? halfway(layout_, to) : std::nullopt) {
    return moved(mesh, *between).moved(mesh, to);
  }
  return moved(mesh, to);
}

at::Tensor ShardedTensor::slice(const std::vector<int64_t>& offsets,
                                const std::vector<int64_t>& sizes) const {
  const std::vector<Slice> slices = slices_of_all(layout_, {offsets, sizes}, mesh_.flat());
  return exchange(plan_slices(layout_, slices), local_, mesh_.flat());
}

ShardedTensor distribute(const at::Tensor& whole, const comm::DeviceMesh& mesh,
                         std::vector<Placement> placements, const DistributeOptions& options) {
  if (options.from_rank_zero) return from_rank_zero(whole, mesh, std::move(placements));
  LEVIN_CHECK(whole.defined(), "shard.local", "got an undefined tensor, wanted the full tensor");
  const Layout layout(whole.sizes().vec(), mesh.shape(), replicated(mesh));
  return ShardedTensor::from_local(whole, mesh, layout).redistribute(std::move(placements));
}

std::string to_text(const ShardedTensor& tensor) {
  return fmt::format("ShardedTensor {} {} of {}", c10::toString(tensor.local().scalar_type()),
                     c10::str(tensor.local().sizes()), to_text(tensor.layout()));
}

std::ostream& operator<<(std::ostream& out, const ShardedTensor& tensor) {
  return out << to_text(tensor);
}

}  // namespace levin::shard
