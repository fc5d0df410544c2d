#include "levin/interchange/export/record/capture.h"

#include <ATen/core/Dict.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/profiler/unwind/unwind.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/graph/record/current_place.h"
#include "levin/interchange/export/record/output_tree.h"
#include "levin/interchange/export/record/recordings.h"
#include "levin/interchange/export/record/storage_watch.h"

namespace levin::interchange {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using Origin = RecordedValue::Origin;

/// Above autocast, autograd and the operators that only call others; nothing of LibTorch uses it.
constexpr DispatchKey kKey = DispatchKey::TESTING_ONLY_GenericWrapper;

constexpr std::string_view kWritesConstant =
    "a tensor that is written and is no parameter, buffer or input, and that this call did not "
    "make, "
    "cannot be exported; use register_buffer";

class Handler;
thread_local Handler* current = nullptr;

class Handler {
 public:
  virtual ~Handler() = default;
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    c10::function_ref<void()> proceed) = 0;
};

void interpose(const c10::OperatorHandle& op, DispatchKeySet keys, torch::jit::Stack* stack) {
  const DispatchKeySet below = keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, kKey);
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  if (current == nullptr) return op.redispatchBoxed(below, stack);
  current->call(op, *stack, [&] { op.redispatchBoxed(below, stack); });
}

/// The calls of this thread go to the handler for the time of the object.
class Scope {
 public:
  explicit Scope(Handler& handler) : before_(current) { current = &handler; }
  ~Scope() { current = before_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Handler* before_;
  c10::impl::IncludeDispatchKeyGuard seen_{kKey};
};

/// It hands memory out and leaves what is in it.
bool leaves_memory_as_it_is(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

/// nonzero, masked_select, x.index({mask}): how many there are depends on values.
bool has_size_of_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (op.schema().name() == "aten::index") {
    for (const IValue& index : stack.back().toListRef()) {
      if (!index.isTensor()) continue;
      const at::ScalarType dtype = index.toTensor().scalar_type();
      if (dtype == at::kBool || dtype == at::kByte) return true;
    }
    return false;
  }
  if (op.schema().name() == "aten::one_hot") return stack.back().toInt() < 0;
  return op.hasTag(at::Tag::dynamic_output_shape);
}

const c10::StorageImpl* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

/// Its elements are all that its memory holds.
bool is_whole(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.nbytes() == tensor.storage().nbytes();
}

[[noreturn]] void fail_host_write(const at::Tensor& tensor, const std::string& place) {
  LEVIN_FAIL("interchange.export.host_write",
             "the host wrote into a tensor of sizes {} that operators had computed, or that is the "
             "module's (data_ptr, "
             "accessor){}; a program of torch.export has operators only: use index_put_, "
             "torch::where",
             c10::str(tensor.sizes()), place);
}

/// The host sees its result: a value of a tensor.
bool reads_on_host(const c10::FunctionSchema& schema) {
  bool takes_tensor = false;
  for (const c10::Argument& formal : schema.arguments()) {
    takes_tensor |= formal.type()->isSubtypeOf(*c10::TensorType::get());
  }
  // Facts about the dtype and the layout are the same for every call.
  for (const char* fact : {"aten::is_", "aten::_has_compatible", "aten::result_type", "aten::dim",
                           "aten::can_cast", "aten::size", "aten::stride", "aten::numel"}) {
    if (schema.name().starts_with(fact) && schema.name() != "aten::is_nonzero") return false;
  }
  return takes_tensor && !schema.returns().empty() &&
         schema.returns().front().type()->kind() != c10::TypeKind::TensorType &&
         schema.returns().front().type()->kind() != c10::TypeKind::ListType;
}

}  // namespace

struct Capture::Impl final : Handler {
  /// How an operator takes a tensor.
  enum class Use { kRead, kView, kWrite, kFill };
  struct Known {
    ValueId id = kNoValue;
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
    /// Its memory when an operator last gave it, to compare with.
    const c10::StorageImpl* storage = nullptr;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };
  explicit Impl(const CaptureOptions& options) : options(options) {}

  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
            c10::function_ref<void()> proceed) override;
  bool is_any_branch(const torch::jit::Stack& stack, c10::function_ref<void()> proceed);
  void read(const c10::OperatorHandle& op, const torch::jit::Stack& stack, RecordedCall& call);
  RecordedArgument argument(const c10::Argument& formal, const IValue& value, Use use);
  static Use use_of(const c10::OperatorHandle& op, const c10::Argument& formal);
  ValueId read_tensor(const at::Tensor& tensor, Use use);
  ValueId add_filled(ValueId id, const at::Tensor& tensor, Use use);
  ValueId read_constant(ValueId id, const at::Tensor& tensor, Use use);
  ValueId add_call(const char* op, const at::Tensor& result, ValueId source);
  ValueId find(const at::Tensor& tensor);
  void check_memory(const Known& known, const at::Tensor& tensor) const;
  void check_state();
  void check_constants();
  ValueId add_value(const at::Tensor& tensor, Origin origin, size_t index);
  ValueId add(const at::Tensor& tensor, Origin origin, size_t index);
  void add_copy(ValueId id, const at::Tensor& tensor);
  ValueId add_copied(const at::Tensor& tensor);
  void keep_parameter(const at::Tensor& written);
  ValueId add_constant(const at::Tensor& tensor);
  void note_gradient(ValueId id, const at::Tensor& tensor);
  void add_results(const torch::jit::Stack& stack, RecordedCall& call);
  void note_writes(const RecordedCall& call, const torch::jit::Stack& arguments,
                   const torch::jit::Stack& results);
  CallMode mode();
  std::string place() const { return graph::current_place(); }

  CaptureOptions options;
  std::vector<at::Tensor> state;  ///< the module's tensors, then the inputs
  std::vector<std::pair<at::Tensor, at::Tensor>>
      kept;                    ///< tensors that forward writes, as they were
  std::vector<size_t> copies;  ///< calls of add_copied
  Recording recording;
  StorageWatch watch;
  graph::StackSearch attention{{"multi_head_attention_forward"}};
  graph::StackSearch function{{"torch::autograd::Function<"}};
  std::unordered_map<const c10::TensorImpl*, Known> known;
  std::unordered_map<const c10::StorageImpl*, std::vector<Known>> by_storage;
};

Capture::Capture(const std::vector<ModuleTensor>& module_tensors,
                 const std::vector<at::Tensor>& inputs, const CaptureOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  for (size_t i = 0; i < module_tensors.size(); ++i) {
    const ModuleTensor& each = module_tensors[i];
    const Origin origin = each.is_parameter ? Origin::kParameter : Origin::kBuffer;
    // A tensor with two names is known by its first, and is a value under each.
    const auto before = impl_->known.find(each.tensor.unsafeGetTensorImpl());
    const ValueId first = before == impl_->known.end() ? kNoValue : before->second.id;
    impl_->add(each.tensor, origin, i);
    if (first != kNoValue) impl_->known.at(each.tensor.unsafeGetTensorImpl()).id = first;
    impl_->watch.note(each.tensor, /*is_independent=*/false, /*is_uninitialized=*/false);
    impl_->state.push_back(each.tensor);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    impl_->add(inputs[i], Origin::kInput, i);
    impl_->watch.note(inputs[i], /*is_independent=*/false, /*is_uninitialized=*/false);
    impl_->state.push_back(inputs[i]);
  }
}

Capture::~Capture() {
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, before] : impl_->kept) {
    if (tensor.sizes() == before.sizes()) tensor.copy_(before);
  }
}

Recording Capture::record(const std::function<IValue()>& function) {
  IValue result;
  {
    const Scope scope(*impl_);
    result = function();
  }
  OutputTree tree = output_tree_of(result);
  for (const IValue& leaf : tree.leaves) {
    RecordedArgument output;
    if (leaf.isTensor() && leaf.toTensor().defined()) {
      output.kind = RecordedArgument::Kind::kTensor;
      output.values = {impl_->read_tensor(leaf.toTensor(), Impl::Use::kRead)};
    } else if (!leaf.isTensor()) {
      output.constant = leaf;
    }
    impl_->recording.outputs.push_back(std::move(output));
  }
  impl_->check_state();
  impl_->check_constants();
  impl_->recording.output_tree = std::move(tree.text);
  return std::move(impl_->recording);
}

CallMode Capture::Impl::mode() {
  const bool grad_enabled = c10::GradMode::is_enabled();
  return {.grad_enabled = grad_enabled,
          .autocast = current_autocast(options.device),
          .in_function = !grad_enabled && function.finds()};
}

void Capture::Impl::call(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                         c10::function_ref<void()> proceed) {
  const c10::FunctionSchema& schema = op.schema();
  if (reads_on_host(schema)) {
    if (schema.name() == "aten::equal" && is_any_branch(stack, proceed)) return;
    LEVIN_FAIL("interchange.export.read",
               "the module reads a value of a tensor by {}{}; a program of torch.export cannot "
               "depend on values: compute with tensors (torch::where), or export the part of it "
               "that reads none",
               schema.name(), place());
  }
  LEVIN_CHECK(!has_size_of_values(op, stack), "interchange.export.values",
              "the size of what {} gives depends on values{}; a program of torch.export that levin "
              "writes has sizes that follow from those of the inputs: use torch::where, or a mask",
              schema.name(), place());
  LEVIN_CHECK(
      !schema.name().starts_with("levin::"), "interchange.export.operator",
      "{} is an operator of levin, which Python does not have{}; export the part of the module "
      "without it (the logits, not the loss)",
      schema.name(), place());
  RecordedCall call{.op = op, .mode = mode()};
  if (options.frames) call.frames = torch::unwind::unwind();
  const torch::jit::Stack arguments(stack.end() - static_cast<int64_t>(schema.arguments().size()),
                                    stack.end());
  read(op, arguments, call);
  proceed();
  const torch::jit::Stack results(stack.end() - static_cast<int64_t>(schema.returns().size()),
                                  stack.end());
  add_results(results, call);
  note_writes(call, arguments, results);
  recording.calls.push_back(std::move(call));
}

/// Returns whether the code after aten::equal may do for all values what it does now. LibTorch's attention asks
/// whether query, key and value are one tensor, and computes the same more slowly where they are not.
bool Capture::Impl::is_any_branch(const torch::jit::Stack& stack,
                                  c10::function_ref<void()> proceed) {
  const at::Tensor left = stack[stack.size() - 2].toTensor(), right = stack.back().toTensor();
  proceed();
  if (left.is_same(right)) return true;
  return !stack.back().toBool() && attention.finds();
}

void Capture::Impl::read(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                         RecordedCall& call) {
  const auto& formals = op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    try {
      call.arguments.push_back(argument(formals[i], stack[i], use_of(op, formals[i])));
    } catch (const Error& error) {
      if (error.id() != "interchange.export.operator") throw;
      LEVIN_FAIL("interchange.export.operator", "{} of {}{}", error.text(), op.schema().name(),
                 place());
    }
  }
}

RecordedArgument Capture::Impl::argument(const c10::Argument& formal, const IValue& value,
                                         Use use) {
  RecordedArgument made;
  const auto read_one = [&](const at::Tensor& tensor) {
    return tensor.defined() ? read_tensor(tensor, use) : kNoValue;
  };
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) return made;
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      made.constant = tensor.item();
      return made;
    }
    made.kind = RecordedArgument::Kind::kTensor;
    made.values = {read_one(tensor)};
    return made;
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    made.kind = RecordedArgument::Kind::kTensors;
    for (const IValue& item : value.toListRef()) {
      made.values.push_back(item.isNone() ? kNoValue : read_one(item.toTensor()));
    }
    return made;
  }
  LEVIN_CHECK(!value.isGenerator(), "interchange.export.operator",
              "the generator of its own cannot be exported, only the default one: the argument {}",
              formal.name());
  LEVIN_CHECK(
      !value.isObject() && !value.isCustomClass() && !value.isStream() && !value.isStorage(),
      "interchange.export.operator", "an object cannot be exported: the argument {}",
      formal.name());
  made.constant = value;
  return made;
}

Capture::Impl::Use Capture::Impl::use_of(const c10::OperatorHandle& op,
                                         const c10::Argument& formal) {
  if (formal.alias_info() == nullptr) return Use::kRead;
  if (!formal.alias_info()->isWrite()) return Use::kView;
  if (formal.kwarg_only()) return Use::kFill;  // out=
  for (const char* fill : {"fill_", "zero_", "copy_", "uniform_", "normal_", "random_",
                           "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_"}) {
    if (op.schema().name() == std::string("aten::") + fill) return Use::kFill;
  }
  return Use::kWrite;
}

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
                "{}: an argument", kWritesConstant);
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
  LEVIN_CHECK(use == Use::kRead, "interchange.export.operator", "{}: an argument", kWritesConstant);
  // The host may have filled it anew since.
  const at::Tensor& before = recording.constants[recording.values[id].index];
  return at::equal(before, tensor.detach().cpu()) ? id : add_constant(tensor);
}

ValueId Capture::Impl::add_filled(ValueId id, const at::Tensor& tensor, Use use) {
  if (use == Use::kRead) return add_constant(tensor);
  // A constant stays as it is in each call: what is written is a copy of it. The whole memory is copied, which
  // other views may be of.
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
             "the host and operators write parts of one tensor of sizes {}{}; a program of "
             "torch.export has operators only: use index_put_, torch::where",
             c10::str(tensor.sizes()), place());
}

/// A copy of a constant; it is the constant itself where nothing writes into it.
ValueId Capture::Impl::add_copied(const at::Tensor& tensor) {
  const at::Tensor contents = tensor.detach().cpu().clone();
  const ValueId constant = add_value(contents, Origin::kConstant, recording.constants.size());
  recording.constants.push_back(contents);
  copies.push_back(recording.calls.size());
  return add_call("aten::clone", tensor, constant);
}

void Capture::Impl::check_constants() {
  const std::vector<ValueId> roots = roots_of(recording);
  std::vector<bool> writes(recording.values.size());
  for (const RecordedCall& call : recording.calls) {
    const auto& formals = call.op.schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      if (!is_written(formals[i])) continue;
      for (const ValueId id : call.arguments[i].values) {
        if (id == kNoValue) continue;
        writes[roots[id]] = true;
        LEVIN_CHECK(recording.values[roots[id]].origin != Origin::kConstant,
                    "interchange.export.operator", "{}: the argument {} of {}", kWritesConstant,
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

/// Before a call writes there.
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
  const at::Tensor contents = tensor.detach().cpu().clone();
  const ValueId constant = add_value(contents, Origin::kConstant, recording.constants.size());
  recording.constants.push_back(contents);
  RecordedCall call{.op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", ""),
                    .mode = mode()};
  for (const ValueId each : {id, constant}) {
    RecordedArgument& argument = call.arguments.emplace_back();
    argument.kind = RecordedArgument::Kind::kTensor;
    argument.values = {each};
  }
  call.arguments.push_back({.constant = false});
  call.results.push_back({.values = {add_value(tensor, Origin::kResult, recording.calls.size())}});
  recording.calls.push_back(std::move(call));
}

/// set_data() and its like give a tensor other memory without an operator.
void Capture::Impl::check_memory(const Known& known, const at::Tensor& tensor) const {
  const bool is_same = known.storage == memory_of(tensor) && tensor.sizes() == known.sizes &&
                       tensor.strides() == known.strides;
  LEVIN_CHECK(is_same, "interchange.export.operator",
              "a tensor of sizes {} was given other memory, of sizes {}, by no operator "
              "(set_data); write into it (copy_): an argument",
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
    if (!other ||
        other->storage().unsafeGetStorageImpl() != tensor.storage().unsafeGetStorageImpl()) {
      continue;
    }
    shares = true;
    if (other->sizes() == tensor.sizes() && other->strides() == tensor.strides() &&
        other->storage_offset() == tensor.storage_offset() && other->dtype() == tensor.dtype()) {
      return add_call("aten::detach", tensor, each.id);
    }
  }
  LEVIN_CHECK(!shares || watch.is_independent(tensor), "interchange.export.operator",
              "a tensor of sizes {} that shares memory with another, in a way that no operator "
              "made, cannot be exported: an argument",
              c10::str(tensor.sizes()));
  return kNoValue;
}

/// A call that the code did not make.
ValueId Capture::Impl::add_call(const char* op, const at::Tensor& result, ValueId source) {
  RecordedCall call{.op = c10::Dispatcher::singleton().findSchemaOrThrow(op, ""), .mode = mode()};
  RecordedArgument argument;
  argument.kind = RecordedArgument::Kind::kTensor;
  argument.values = {source};
  call.arguments.push_back(std::move(argument));
  const auto& formals = call.op.schema().arguments();
  for (size_t i = 1; i < formals.size(); ++i) {
    call.arguments.push_back({.constant = formals[i].default_value().value_or(IValue())});
  }
  const ValueId id = add(result, Origin::kResult, recording.calls.size());
  call.results.push_back({.values = {id}});
  recording.calls.push_back(std::move(call));
  return id;
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

ValueId Capture::Impl::add(const at::Tensor& tensor, Origin origin, size_t index) {
  const ValueId id = add_value(tensor, origin, index);
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
              "a tensor of sizes {} was computed of parameters before this call of forward, and "
              "their gradients go "
              "through it; compute it in forward: an argument",
              c10::str(tensor.sizes()));
  const at::Tensor contents = tensor.detach().cpu().clone();
  const ValueId id = add(tensor, Origin::kConstant, recording.constants.size());
  RecordedValue& value = recording.values[id];
  value.requires_grad = false;
  value.strides = contents.strides().vec();
  value.storage_offset = contents.storage_offset();
  recording.constants.push_back(contents);
  return id;
}

void Capture::Impl::note_gradient(ValueId id, const at::Tensor& tensor) {
  const RecordedValue& value = recording.values[id];
  if (value.origin != Origin::kResult || !tensor.requires_grad() || tensor.is_leaf()) return;
  const CallMode made_in = recording.calls[value.index].mode;
  const auto& function = tensor.grad_fn();
  constexpr std::string_view kOwnFunctions = "CppNode<levin::";
  const std::string name = function == nullptr ? "" : function->name();
  if (name.find("CppNode<") == std::string::npos) return;
  // levin's own functions have the gradients of the operators that they are made of.
  LEVIN_CHECK(!options.training || name.find(kOwnFunctions) != std::string::npos,
              "interchange.export.function",
              "{} has a backward of its own{}, which a program of torch.export cannot have; export "
              "the module in evaluation mode (eval()), or write its forward of operators",
              name, place());
  // It computed with gradients, and gave what it had detached from them.
  LEVIN_CHECK(
      !options.training || !made_in.grad_enabled, "interchange.export.function",
      "{} computes its block anew in backward (activation_checkpoint){}, which a program of "
      "torch.export cannot; export the module without activation checkpointing: it computes the "
      "same",
      name, place());
  if (made_in.grad_enabled) return;
  // Its operators are recorded as if gradients were on.
  for (size_t i = value.index + 1; i-- > 0;) {
    CallMode& each = recording.calls[i].mode;
    if (each.grad_enabled || each.in_function != made_in.in_function) break;
    each = {.grad_enabled = true, .autocast = each.autocast};
  }
}

void Capture::Impl::add_results(const torch::jit::Stack& stack, RecordedCall& call) {
  const size_t index = recording.calls.size();
  const bool writes = std::ranges::any_of(call.op.schema().arguments(), is_written);
  const auto add_one = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return kNoValue;
    const auto found = known.find(tensor.unsafeGetTensorImpl());
    const bool is_known = found != known.end() && !found->second.tensor.expired();
    const ValueId before = is_known ? found->second.id : kNoValue;
    const ValueId id = add(tensor, Origin::kResult, index);
    // An operator that writes a parameter, a buffer or an input in place returns it: it keeps its name. A cast that
    // casts nothing returns it too, and is what comes after for an input, whose dtype may be another.
    if (is_known) {
      const Origin origin = recording.values[before].origin;
      const bool keeps = origin == Origin::kInput ? writes : origin != Origin::kResult;
      if (keeps) known.at(tensor.unsafeGetTensorImpl()).id = before;
    }
    return id;
  };
  for (const IValue& value : stack) {
    RecordedResult result;
    if (value.isTensor()) {
      result.values = {add_one(value.toTensor())};
    } else if (value.isTensorList()) {
      result.is_list = true;
      for (const IValue& item : value.toListRef())
        result.values.push_back(add_one(item.toTensor()));
    }
    call.results.push_back(std::move(result));
  }
}

void Capture::Impl::note_writes(const RecordedCall& call, const torch::jit::Stack& arguments,
                                const torch::jit::Stack& results) {
  bool is_independent = !call.op.hasTag(at::Tag::nondeterministic_seeded);
  const auto for_each = [](const IValue& value, const auto& visit) {
    if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
    if (!value.isTensorList()) return;
    for (const IValue& item : value.toListRef()) visit(item.toTensor());
  };
  for (const IValue& argument : arguments) {
    for_each(argument, [&](const at::Tensor& tensor) {
      is_independent = is_independent && watch.is_independent(tensor);
    });
  }
  const bool is_uninitialized = leaves_memory_as_it_is(call.op);
  const auto note = [&](const at::Tensor& tensor) {
    watch.note(tensor, is_independent, is_uninitialized);
  };
  const auto& formals = call.op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    if (is_written(formals[i]) || is_written_unsaid(formals[i])) for_each(arguments[i], note);
  }
  const auto& returns = call.op.schema().returns();
  for (size_t i = 0; i < returns.size(); ++i) {
    // A view's memory is as it was.
    if (returns[i].alias_info() == nullptr) for_each(results[i], note);
  }
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&interpose>());
}

}  // namespace levin::interchange
