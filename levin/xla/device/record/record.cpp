// Records operators as they are called, and makes their results without contents.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/aminmax.h>

#include <algorithm>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/tensors_in.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// The arguments that are the table, its dimension, and the places in it.
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

/// Checks indices and labels that an operator gets from the host. Indices out of range are Error
/// "xla.index" here, as on the CPU. On the device their values are not known when an operator is
/// called.
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

bool is_here(const at::Tensor& tensor) { return tensor.defined() && tensor.is_xla(); }

/// Reads a floating CPU tensor without dims. It calls no operator, because each step reads some.
double value_of_number(const at::Tensor& number) {
  if (number.scalar_type() == at::kDouble) return *number.const_data_ptr<double>();
  if (number.scalar_type() == at::kFloat) return *number.const_data_ptr<float>();
  return number.item().toDouble();
}

}  // namespace

Recording::Recording(RuntimeImpl& owner, LiveContents& live, Devices& devices, Memo& memo)
    : owner_(owner), live_(live), devices_(devices), memo_(memo), trace_(memo.calls) {}

/// Sources cost a recording more than it does: only where one is rare, or seems to be for nothing.
graph::Recorder& Recording::recorder() {
  if (recorder_ == nullptr) {
    recorder_ = std::make_unique<graph::Recorder>(
        graph::RecorderOptions{.allow_host_reads = true,
                               .allow_stale = true,
                               .sources = is_in_step_ || memo_.log.is_busy(),
                               .host_read_sources = true});
    if (!trace_.is_empty()) record_followed();
  }
  return *recorder_;
}

/// Gives the tensor contents.
void Recording::prepare_own(const at::Tensor& argument) {
  Contents& contents = Contents::of(argument);
  check_not_lost(contents);
  LEVIN_CHECK(contents.runtime.get() == &owner_, "xla.closed",
              "got a tensor of a closed xla device; keep the Accelerator, or the result of "
              "Runtime::open, as long as its tensors");
  if (contents.buffers.empty() && !contents.is_pending) add_zeros(contents);
}

/// An argument of the host as the recorder takes it: on the device unless it is a number.
at::Tensor Recording::prepared(const at::Tensor& argument) {
  LEVIN_CHECK(argument.is_cpu(), "xla.device",
              "got tensors on xla and on {} for one operator; move them to one device",
              c10::str(argument.device()));
  if (argument.unsafeGetTensorImpl()->is_wrapped_number()) return argument;
  if (argument.dim() == 0 && argument.is_floating_point()) {
    remember_number(argument);
    return argument;
  }
  at::Tensor copy = Contents::make_tensor(owner_.shared_from_this(), argument.sizes(),
                                          argument.strides(), argument.scalar_type());
  devices_.upload(Contents::of(copy), argument, /*split=*/false);
  return copy;
}

/// Prepares tensors of the host first: they may need all earlier recordings to run.
void Recording::prepare(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                        size_t first) {
  const auto is_ready = [](const at::Tensor& tensor) {
    return !tensor.defined() || is_here(tensor);
  };
  const auto are_ready = [&](const c10::IValue& value) {
    bool are = true;
    graph::for_each_tensor(value, [&](const at::Tensor& tensor) { are = are && is_ready(tensor); });
    return are;
  };
  const auto arguments = [&] { return at::ArrayRef(stack).slice(first); };
  if (!std::ranges::all_of(arguments(), are_ready)) {
    check_host_indices(op, arguments());
    const at::NoGradGuard no_grad;
    for (size_t i = first; i < stack.size(); ++i) {
      if (are_ready(stack[i])) continue;
      stack[i] = graph::with_tensors_replaced(stack[i], [&](const at::Tensor& tensor) {
        return is_ready(tensor) ? tensor : prepared(tensor);
      });
    }
  }
  for (const c10::IValue& argument : arguments()) {
    graph::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (is_here(tensor)) prepare_own(tensor);
    });
  }
}

/// If the host has changed it since this recording read it, the recording ends here: it holds one
/// value of each.
void Recording::remember_number(const at::Tensor& number) {
  const uint32_t version = number._version();
  const auto known = numbers_.find(number.unsafeGetTensorImpl());
  if (known != numbers_.end()) {
    if (known->second.version == version) return;
    flush("the host changes a number in it");
  }
  numbers_[number.unsafeGetTensorImpl()] = {number, version, value_of_number(number)};
}

/// Memory that nobody has written holds zeros, whatever made the tensor.
void Recording::add_zeros(Contents& contents) {
  // Not empty(): the recorder takes the contents of that one for the host's.
  static const c10::OperatorHandle zeros =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::zeros", "");
  const at::NoGradGuard no_grad;
  std::vector<c10::IValue> stack = {c10::IValue(at::IntArrayRef(contents.sizes)),
                                    c10::IValue(contents.dtype), c10::IValue(),
                                    c10::IValue(c10::Device(at::kXLA, 0)), c10::IValue()};
  record_call(zeros, stack, &contents);
}

/// A batch norm that trains writes its statistics, which its schema does not say.
bool writes(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments, size_t argument) {
  if (graph::is_written(op.schema().arguments()[argument])) return true;
  const bool is_statistic =
      (argument == 3 || argument == 4) && op.schema().name() == "aten::native_batch_norm";
  return is_statistic && arguments[argument].isTensor() && arguments[5].toBool();
}

/// Records the call, unless it and all calls before it are known: then nothing is recorded.
void Recording::record_call(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                            Contents* filled) {
  const size_t first = stack.size() - op.schema().arguments().size();
  const bool is_compared =
      !is_in_step_ && trace_.at() != nullptr && trace_.read(op, at::ArrayRef(stack).slice(first));
  if (is_compared && recorder_ == nullptr) {
    if (CallTree::Call* known = trace_.at()->find(trace_.key())) {
      return follow(*known, stack, first, filled);
    }
  }
  CallTree::Call call = {};
  if (is_compared) call = call_of(at::ArrayRef(stack).slice(first), op);
  std::vector<at::Tensor> written;
  for (size_t i = first; i < stack.size(); ++i) {
    const bool is_written = writes(op, at::ArrayRef(stack).slice(first), i - first);
    graph::for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) return;
      if (is_written) written.push_back(tensor);
      if (is_met_by_memory(tensor)) recorder().meet(Contents::of(tensor).base());
    });
  }
  const graph::Node* node = recorder().call(op, stack, [&] {
    if (filled != nullptr) {
      stack = {filled->base()};
    } else {
      infer(op, stack, owner_.shared_from_this());
    }
  });
  if (memo_.log.in_optimizer && node != nullptr) memo_.log.optimizer_nodes.insert(node);
  for (const at::Tensor& tensor : written) Contents::of(tensor).is_pending = true;
  const size_t results = stack.size() - op.schema().returns().size();
  for (size_t i = results; i < stack.size(); ++i) {
    graph::for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) return;
      Contents& contents = Contents::of(tensor);
      if (contents.buffers.empty()) contents.is_pending = true;
    });
  }
  if (!is_compared || (filled == nullptr && memo_.inferred.last() == nullptr)) return trace_.stop();
  remember_call(std::move(call), at::ArrayRef(stack).slice(results), node, filled);
}

void Recording::record(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) {
  const std::scoped_lock lock(owner_.mutex);
  prepare(op, stack, stack.size() - op.schema().arguments().size());
  record_call(op, stack, nullptr);
}

}  // namespace levin::xla
