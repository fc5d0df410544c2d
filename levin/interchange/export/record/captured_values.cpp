#include <ATen/ops/equal.h>

#include <algorithm>
#include <string_view>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/interchange/export/record/capture_impl.h"
#include "levin/interchange/export/record/recordings.h"

namespace levin::interchange {
namespace {

using c10::IValue;
using Origin = RecordedValue::Origin;

constexpr std::string_view kWritesConstant =
    "forward writes into a tensor that is not a parameter, buffer or input and was not made in "
    "this call; make it a buffer with register_buffer. The tensor is";

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// Its elements are all that its memory holds.
bool is_whole(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

[[noreturn]] void fail_host_write(const at::Tensor& tensor, const std::string& place) {
  LEVIN_FAIL(
      "interchange.export.host_write",
      "C++ code (data_ptr, accessor) wrote into a tensor of sizes {} that operators computed or "
      "the module owns{}; a torch.export program has operators only: use index_put_, torch::where",
      c10::str(tensor.sizes()), place);
}

}  // namespace

ValueId Capture::Impl::read_tensor(const at::Tensor& tensor, Use use) {
  LEVIN_CHECK(tensor.layout() == at::kStrided, "interchange.export.operator",
              "a tensor of layout {} cannot be exported: an argument", c10::str(tensor.layout()));
  if (use == Use::kWrite || use == Use::kFill) keep_parameter(tensor);
  const ValueId id = find(tensor);
  using Contents = StorageWatch::Contents;
  if (id == kNoValue) {
    // The host made it in this call, as torch::tensor does: each call of the program has its own copy.
    if (watch.is_independent(tensor)) return add_copied(tensor);
    LEVIN_CHECK(use == Use::kRead || use == Use::kView, "interchange.export.operator",
                "{} an argument", kWritesConstant);
    return add_constant(tensor);
  }
  if (use == Use::kView) {
    note_gradient(id, tensor);
    return id;
  }
  if (recording.values[id].origin == Origin::kConstant) return read_constant(id, tensor, use);
  const Contents contents = watch.look(tensor);
  if (contents == Contents::kUnwritten && use == Use::kRead) return add_constant(tensor);
  if (contents == Contents::kFilledByHost && (use != Use::kFill || !is_whole(tensor))) {
    return add_filled(id, tensor, use);
  }
  if (contents == Contents::kChangedByHost) fail_host_write(tensor, place());
  note_gradient(id, tensor);
  return id;
}

ValueId Capture::Impl::read_constant(ValueId id, const at::Tensor& tensor, Use use) {
  LEVIN_CHECK(use == Use::kRead, "interchange.export.operator", "{} an argument", kWritesConstant);
  // The host may have filled it anew since.
  const at::Tensor& before = recording.constants[recording.values[id].index];
  return at::equal(before, tensor.detach().cpu()) ? id : add_constant(tensor);
}

ValueId Capture::Impl::add_filled(ValueId id, const at::Tensor& tensor, Use use) {
  if (use == Use::kRead) return add_constant(tensor);
  // A constant stays the same in each call: writes go to a copy. The full memory is copied, because
  // other views may share it.
  for (const Known& each : by_storage[tensor.storage().unsafeGetStorageImpl()]) {
    const auto other = each.tensor.lock();
    if (!other) continue;
    const at::Tensor whole = at::Tensor(other);
    if (!whole.has_storage() || !whole.storage().is_alias_of(tensor.storage()) || !is_whole(whole))
      continue;
    const ValueId base = known.at(whole.unsafeGetTensorImpl()).id;
    add_copy(base, whole);
    watch.note(whole, /*is_independent=*/true, /*is_uninitialized=*/false);
    return id;
  }
  LEVIN_FAIL("interchange.export.host_write",
             "C++ code (data_ptr, accessor) and operators write parts of one tensor of sizes {}{}; "
             "a torch.export program has operators only: use index_put_, torch::where",
             c10::str(tensor.sizes()), place());
}

/// A copy of a constant; it is the constant itself where nothing writes into it.
ValueId Capture::Impl::add_copied(const at::Tensor& tensor) {
  const ValueId constant = add_contents(tensor);
  copies.push_back(recording.calls.size());
  return add_call("aten::clone", {constant}, add(tensor, Origin::kResult, recording.calls.size()));
}

void Capture::Impl::check_constants() {
  const std::vector<ValueId> roots = roots_of(recording);
  std::vector<bool> writes(recording.values.size());
  for (const RecordedCall& call : recording.calls) {
    const auto& formals = call.op.schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      if (!graph::is_written(formals[i])) continue;
      for (const ValueId id : call.arguments[i].values) {
        if (id == kNoValue) continue;
        writes[roots[id]] = true;
        LEVIN_CHECK(recording.values[roots[id]].origin != Origin::kConstant,
                    "interchange.export.operator", "{} the argument {} of {}", kWritesConstant,
                    formals[i].name(), call.op.schema().name());
      }
    }
  }
  std::unordered_map<ValueId, ValueId> replaced;
  for (const size_t copy : copies) {
    const RecordedCall& call = recording.calls[copy];
    const ValueId made = call.results.front().values.front();
    if (!writes[made]) replaced[made] = call.arguments.front().values.front();
  }
  const auto replace = [&](RecordedArgument& argument) {
    for (ValueId& id : argument.values) {
      if (const auto found = replaced.find(id); found != replaced.end()) id = found->second;
    }
  };
  for (RecordedCall& call : recording.calls) std::ranges::for_each(call.arguments, replace);
  std::ranges::for_each(recording.outputs, replace);
}

/// Called before a call writes there.
void Capture::Impl::keep_parameter(const at::Tensor& written) {
  for (const at::Tensor& each : state) {
    if (memory_of(each) == nullptr || memory_of(each) != memory_of(written)) continue;
    const bool is_kept =
        std::ranges::any_of(kept, [&](const auto& pair) { return pair.first.is_same(each); });
    if (!is_kept) kept.emplace_back(each, each.detach().clone());
  }
}

/// Writes what the tensor of that value holds now, as a constant.
void Capture::Impl::add_copy(ValueId id, const at::Tensor& tensor) {
  const ValueId constant = add_contents(tensor);
  add_call("aten::copy_", {id, constant},
           add_value(tensor, Origin::kResult, recording.calls.size()));
}

/// set_data() and its like give a tensor other memory without an operator.
void Capture::Impl::check_memory(const Known& known, const at::Tensor& tensor) const {
  const bool is_same = known.storage == memory_of(tensor) && tensor.sizes() == known.sizes &&
                       tensor.strides() == known.strides;
  LEVIN_CHECK(is_same, "interchange.export.operator",
              "a tensor of sizes {} got other memory, of sizes {}, without an operator (set_data); "
              "write into it (copy_): an argument",
              c10::str(at::IntArrayRef(known.sizes)), c10::str(tensor.sizes()));
}

/// Refuses what the host did to parameters, buffers and inputs after their last operator.
void Capture::Impl::check_state() {
  for (const at::Tensor& each : state) {
    try {
      check_memory(known.at(each.unsafeGetTensorImpl()), each);
    } catch (const Error& error) {
      LEVIN_FAIL("interchange.export.operator", "{} of forward", error.text());
    }
    if (watch.look(each) == StorageWatch::Contents::kChangedByHost) fail_host_write(each, "");
  }
}

ValueId Capture::Impl::find(const at::Tensor& tensor) {
  const auto found = known.find(tensor.unsafeGetTensorImpl());
  if (found != known.end() && !found->second.tensor.expired()) {
    check_memory(found->second, tensor);
    return found->second.id;
  }
  if (!tensor.has_storage()) return kNoValue;
  // Tensor::data() makes a tensor of the same memory without an operator.
  const auto sharing = by_storage.find(tensor.storage().unsafeGetStorageImpl());
  if (sharing == by_storage.end()) return kNoValue;
  bool shares = false;
  for (const Known& each : sharing->second) {
    const auto other = each.tensor.lock();
    if (!other || other->storage().unsafeGetStorageImpl() != sharing->first) continue;
    shares = true;
    if (other->sizes() == tensor.sizes() && other->strides() == tensor.strides() &&
        other->storage_offset() == tensor.storage_offset() && other->dtype() == tensor.dtype()) {
      const ValueId source = each.id;
      return add_call("aten::detach", {source},
                      add(tensor, Origin::kResult, recording.calls.size()));
    }
  }
  LEVIN_CHECK(!shares || watch.is_independent(tensor), "interchange.export.operator",
              "a tensor of sizes {} aliases another through an untracked view and cannot be "
              "exported: an argument",
              c10::str(tensor.sizes()));
  return kNoValue;
}

/// A call that the code did not make, of these values and the defaults of the other arguments.
ValueId Capture::Impl::add_call(const char* op, const std::vector<ValueId>& sources,
                                ValueId result) {
  RecordedCall call{.op = c10::Dispatcher::singleton().findSchemaOrThrow(op, ""), .mode = mode()};
  for (const ValueId source : sources) {
    call.arguments.push_back({.kind = RecordedArgument::Kind::kTensor, .values = {source}});
  }
  const auto& formals = call.op.schema().arguments();
  for (size_t i = sources.size(); i < formals.size(); ++i) {
    call.arguments.push_back({.constant = formals[i].default_value().value_or(IValue())});
  }
  call.results.push_back({.values = {result}});
  recording.calls.push_back(std::move(call));
  return result;
}

/// A value that no later call finds by the tensor.
ValueId Capture::Impl::add_value(const at::Tensor& tensor, Origin origin, size_t index) {
  const ValueId id = recording.values.size();
  recording.values.push_back({.origin = origin,
                              .index = index,
                              .dtype = tensor.scalar_type(),
                              .device = tensor.device(),
                              .sizes = tensor.sizes().vec(),
                              .strides = tensor.strides().vec(),
                              .storage_offset = tensor.storage_offset(),
                              .requires_grad = tensor.requires_grad()});
  return id;
}

/// The contents of the tensor now, as a constant that no later call finds by it.
ValueId Capture::Impl::add_contents(const at::Tensor& tensor) {
  recording.constants.push_back(tensor.detach().cpu().clone());
  return add_value(recording.constants.back(), Origin::kConstant, recording.constants.size() - 1);
}

ValueId Capture::Impl::add(const at::Tensor& tensor, Origin origin, size_t index) {
  return remember(tensor, add_value(tensor, origin, index));
}

ValueId Capture::Impl::remember(const at::Tensor& tensor, ValueId id) {
  const c10::StorageImpl* storage = memory_of(tensor);
  const auto made = [&] {
    return Known{id, c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), storage,
                 tensor.sizes().vec(), tensor.strides().vec()};
  };
  known.insert_or_assign(tensor.unsafeGetTensorImpl(), made());
  if (storage != nullptr) by_storage[storage].push_back(made());
  return id;
}

ValueId Capture::Impl::add_constant(const at::Tensor& tensor) {
  LEVIN_CHECK(!options.training || !tensor.requires_grad() || tensor.is_leaf() ||
                  !c10::GradMode::is_enabled(),
              "interchange.export.operator",
              "a tensor of sizes {} was computed from parameters before this call of forward, and "
              "gradients flow through it; compute it in forward. It is an argument",
              c10::str(tensor.sizes()));
  const ValueId id = add_contents(tensor);
  recording.values[id].device = tensor.device();
  return remember(tensor, id);
}

}  // namespace levin::interchange
