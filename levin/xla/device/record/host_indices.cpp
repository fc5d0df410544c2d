// Indices and labels that an operator gets from the host: those that name nothing are an error
// here, as on the CPU. On the device their values are not known when an operator is called.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/aminmax.h>

#include <unordered_map>

#include "levin/base/check.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// Which arguments are the table, its dimension, and the places in it.
struct Lookup {
  size_t table;
  size_t places;
  std::optional<size_t> dim = {};      ///< an argument; none: 0, or of classes
  std::optional<size_t> ignored = {};  ///< an argument: a place that stands for none
};

using Lookups = std::unordered_map<const c10::FunctionSchema*, Lookup>;

Lookups make_lookups() {
  Lookups lookups;
  const auto add = [&](const char* name, const Lookup& lookup) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    lookups.emplace(&op.schema(), lookup);
  };
  add("aten::embedding", {.table = 0, .places = 1});
  add("aten::index_select", {.table = 0, .places = 2, .dim = 1});
  add("aten::gather", {.table = 0, .places = 2, .dim = 1});
  add("aten::nll_loss_forward", {.table = 0, .places = 1, .ignored = 4});
  add("aten::nll_loss2d_forward", {.table = 0, .places = 1, .ignored = 4});
  return lookups;
}

int64_t size_of(const Lookup& lookup, at::ArrayRef<c10::IValue> in) {
  const at::Tensor& table = in[lookup.table].toTensor();
  if (table.dim() == 0) return 1;
  int64_t dim = lookup.ignored && table.dim() > 1 ? 1 : 0;
  if (lookup.dim) dim = at::maybe_wrap_dim(in[*lookup.dim].toInt(), table.dim());
  return table.size(dim);
}

}  // namespace

void check_host_indices(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> in) {
  static const Lookups lookups = make_lookups();
  const auto found = lookups.find(&op.schema());
  if (found == lookups.end()) return;
  const Lookup& lookup = found->second;
  at::Tensor places = in[lookup.places].toTensor();
  if (!places.is_cpu() || places.numel() == 0) return;
  if (lookup.ignored) {
    places = places.masked_select(places.ne(in[*lookup.ignored].toInt()));
    if (places.numel() == 0) return;
  }
  const auto [low, high] = at::aminmax(places);
  const int64_t size = size_of(lookup, in);
  LEVIN_CHECK(low.item<int64_t>() >= 0 && high.item<int64_t>() < size, "xla.index",
              "{} got indices from {} to {}, wanted 0 to {}; look at the labels or tokens, or make "
              "the table larger",
              op.schema().name(), low.item<int64_t>(), high.item<int64_t>(), size - 1);
}

}  // namespace levin::xla
