#include "levin/graph/record/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/profiler/unwind/unwind.h>

#include <array>
#include <bit>

#include "levin/base/check.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/record/current_place.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/text/text_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// Compares plain constants, bit for bit, so that -0.0 is not 0.0. Others are never the same.
bool is_same_number(const c10::IValue& left, const c10::IValue& right) {
  if (left.isNone()) return right.isNone();
  if (left.isBool()) return right.isBool() && left.toBool() == right.toBool();
  if (left.isInt()) return right.isInt() && left.toInt() == right.toInt();
  return left.isDouble() && right.isDouble() &&
         std::bit_cast<uint64_t>(left.toDouble()) == std::bit_cast<uint64_t>(right.toDouble());
}

/// Constants that are common as arguments, made once in a process; nullptr for other values.
Constant common_constant(const c10::IValue& value) {
  constexpr int64_t kSmallest = -2, kLargest = 8;
  struct Common {
    Constant none = std::make_shared<const c10::IValue>();
    std::array<Constant, 2> bools;
    std::array<Constant, kLargest - kSmallest + 1> ints;
    Constant one = std::make_shared<const c10::IValue>(1.0);
  };
  static const Common& common = *[] {
    auto* made = new Common();
    for (const bool value : {false, true}) {
      made->bools[value ? 1 : 0] = std::make_shared<const c10::IValue>(value);
    }
    for (int64_t value = kSmallest; value <= kLargest; ++value) {
      made->ints[value - kSmallest] = std::make_shared<const c10::IValue>(value);
    }
    return made;
  }();
  if (value.isNone()) return common.none;
  if (value.isBool()) return common.bools[value.toBool() ? 1 : 0];
  if (value.isInt()) {
    const int64_t number = value.toInt();
    const bool is_common = kSmallest <= number && number <= kLargest;
    return is_common ? common.ints[number - kSmallest] : nullptr;
  }
  return value.isDouble() && value.toDouble() == 1 ? common.one : nullptr;
}

}  // namespace

bool is_same_constant(const c10::IValue& left, const c10::IValue& right) {
  if (left.isGenerator() || right.isGenerator()) {
    return left.isGenerator() && right.isGenerator() && left.toGenerator() == right.toGenerator();
  }
  if (left.isIntList() && right.isIntList()) return left.toDimVector() == right.toDimVector();
  const bool is_plain = left.isNone() || left.isBool() || left.isInt() || left.isDouble();
  return is_plain ? is_same_number(left, right) : text_of(left, nullptr) == text_of(right, nullptr);
}

Recorder::Impl::Impl(RecorderOptions options) : options(options) {
  if (options.watch_host) meet_default_generators();
  if (options.expected == nullptr) return;
  for (const Node& node : options.expected->nodes()) {
    if (node.opcode() == Opcode::kGetAttr && node.tensor().has_storage()) {
      expected_state.insert(node.tensor().storage().unsafeGetStorageImpl());
    }
    const bool draws = node.opcode() == Opcode::kCallFunction && info_of(node).is_random;
    if (!draws || !options.watch_host) continue;
    for (const Argument& argument : node.arguments()) {
      const c10::IValue* constant = constant_of(argument);
      if (constant != nullptr) note_generators({*constant});
    }
  }
}

Recorder::Recorder(RecorderOptions options) : impl_(std::make_unique<Impl>(options)) {}
Recorder::~Recorder() = default;

void Recorder::add_input(const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined()) {
    LEVIN_CHECK(tensor.layout() == at::kStrided, "graph.record.layout",
                "input {} has layout {}, wanted a strided tensor", name, c10::str(tensor.layout()));
    LEVIN_CHECK(
        !tensor.is_conj() && !tensor.is_neg(), "graph.record.layout",
        "input {} is a lazy conjugate or negative; pass resolve_conj() and resolve_neg() of it",
        name);
    LEVIN_CHECK(impl_->aliases.overlapping(Geometry::of(tensor)).empty() &&
                    impl_->aliases.find(tensor) == nullptr,
                "graph.trace.overlap",
                "input {} shares memory with an earlier one, which the graph cannot assume of "
                "later calls; pass a clone",
                name);
  }
  Value& value = impl_->graph.placeholder(name, ValueType::of(tensor));
  impl_->used_names.insert(name);
  if (!tensor.defined()) return;
  Region& region = *impl_->aliases.add_base(tensor, value).region;
  region.input = &value;
  region.is_argument = true;
  impl_->arguments.push_back(tensor);
  impl_->note_contents(region);
}

void Recorder::name_state(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return;
  impl_->state_names.emplace(Geometry::of(tensor), Impl::NamedState{name, tensor});
}

void Recorder::forget_contents(const at::Tensor& tensor) { impl_->forget_contents(tensor); }

void Recorder::meet(const at::Tensor& tensor) { impl_->alias_of(tensor); }

std::unique_ptr<Recorder::Call> Recorder::begin(const c10::OperatorHandle& op,
                                                const std::vector<c10::IValue>& stack) {
  std::unique_ptr<Call> call = impl_->new_call();
  Impl::Known& known = impl_->known(op);
  const OperatorInfo& info = *known.info;
  if (info.is_inplace_view) {
    if (info.name.starts_with("aten::resize_")) {
      call->resized = stack[stack.size() - info.num_parameters()].toTensor();
    }
    return call;
  }
  if (info.name == "levin::release_") {
    for (const c10::IValue& tensor : stack.back().toListRef()) {
      call->released.push_back(tensor.toTensor());
    }
    return call;
  }
  call->info = &info;
  call->constants = &known.constants;
  if (impl_->options.watch_host && info.is_random) {
    impl_->check_generators();
    impl_->note_generators(stack);
  }
  impl_->read_arguments(*call, stack);
  if (info.is_host_read && !impl_->reads_on_host(*call)) call->info = nullptr;
  const bool wants_source =
      impl_->options.sources || (impl_->options.host_read_sources && info.is_host_read);
  if (call->info != nullptr && wants_source) call->frames = torch::unwind::unwind();
  return call;
}

const Node* Recorder::end(std::unique_ptr<Call> call, const std::vector<c10::IValue>& stack) {
  if (call->resized.defined()) impl_->resize(call->resized);
  for (const at::Tensor& tensor : call->released) impl_->forget_contents(tensor);
  const Node* node = call->info != nullptr ? impl_->add_call(*call, stack) : nullptr;
  call->clear();  // above all its tensors: a holder decides whether a tensor is kept
  impl_->spare_calls.push_back(std::move(call));
  return node;
}

const Node* Recorder::call(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack,
                           c10::function_ref<void()> run) {
  std::unique_ptr<Call> recorded = begin(op, stack);
  run();
  return end(std::move(recorded), stack);
}

Graph Recorder::finish(const std::vector<at::Tensor>& results) { return impl_->finish(results); }

Graph Recorder::so_far(const std::vector<at::Tensor>& results) {
  impl_->graph.set_outputs(impl_->values_of(results));
  Graph copy = impl_->graph.clone();
  impl_->graph.set_outputs({});
  keep_what_outputs_need(copy);
  return copy;
}

/// Empty, in memory that a call before has left.
std::unique_ptr<Recorder::Call> Recorder::Impl::new_call() {
  if (spare_calls.empty()) return std::make_unique<Call>();
  std::unique_ptr<Call> call = std::move(spare_calls.back());
  spare_calls.pop_back();
  return call;
}

Recorder::Impl::Known& Recorder::Impl::known(const c10::OperatorHandle& op) {
  Known& entry = operators[&op.schema()];
  if (entry.info == nullptr) {
    entry.info = &info_of(op);
    entry.constants.resize(entry.info->num_parameters());
  }
  return entry;
}

void Recorder::Impl::read_arguments(Call& call, const std::vector<c10::IValue>& stack) {
  const size_t count = call.info->num_parameters();
  const c10::IValue* arguments = stack.data() + (stack.size() - count);
  // An argument may make views of tensors that were read before it (widened), whose values are others then.
  int64_t num_read_at = -1;
  while (num_read_at != num_widened) {
    num_read_at = num_widened;
    call.arguments.clear();
    call.reads.clear();
    call.written.clear();
    auto written = call.info->written.begin();
    for (size_t i = 0; i < count; ++i) {
      const bool is_written = written != call.info->written.end() && *written == i;
      if (is_written) ++written;
      call.arguments.push_back(read_argument(call, arguments[i], is_written));
    }
  }
  if (call.info->name == "aten::as_strided") read_from_base(call);
  if (call.written.size() > 1) check_lists(call);
}

/// Lists are worked through one by one, so that an element may read what one before it wrote: that
/// would be neither the old value nor the new.
void Recorder::Impl::check_lists(const Call& call) const {
  std::unordered_multimap<const Region*, const Call::Read*> written;
  for (const Call::Read& read : call.reads) {
    if (read.is_written) written.emplace(read.alias->region, &read);
  }
  for (const Call::Read& read : call.reads) {
    const auto [begin, end] = read.alias->geometry.extent();
    auto [place, last] = written.equal_range(read.alias->region);
    for (; place != last; ++place) {
      const Call::Read& other = *place->second;
      const bool is_paired = read.is_written || other.position == read.position;
      if (other.alias == read.alias && is_paired) continue;
      const auto [from, to] = other.alias->geometry.extent();
      LEVIN_CHECK(end <= from || to <= begin, "graph.record.alias",
                  "{} reads a tensor {} that it also writes as another element of its lists; call "
                  "it once per element",
                  call.info->name, c10::str(other.alias->geometry.sizes));
    }
  }
}

/// Most calls of an operator pass what the last one did.
Argument Recorder::Impl::constant(const Call& call, const c10::IValue& value) {
  Constant& last = (*call.constants)[call.arguments.size()];
  if (last == nullptr || !is_same_number(*last, value)) {
    last = common_constant(value);
    if (last == nullptr) last = std::make_shared<const c10::IValue>(value);
  }
  return last;
}

Argument Recorder::Impl::read_argument(Call& call, const c10::IValue& argument, bool is_written) {
  if (argument.isTensor()) {
    const at::Tensor& tensor = argument.toTensor();
    if (!tensor.defined()) return constant(call, {});
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && !is_written) return Argument(argument);
    return read_tensor(call, tensor, is_written);
  }
  if (argument.isTensorList() || argument.isOptionalTensorList()) {
    Values values;
    for (const c10::IValue& element : argument.toListRef()) {
      call.position = values.size();
      const bool is_none = element.isNone() || !element.toTensor().defined();
      values.push_back(is_none ? nullptr : read_tensor(call, element.toTensor(), is_written));
    }
    return values;
  }
  return constant(call, argument);
}

Value* Recorder::Impl::read_tensor(Call& call, const at::Tensor& tensor, bool is_written) {
  LEVIN_CHECK(tensor.layout() == at::kStrided && tensor.has_storage(), "graph.record.layout",
              "{} got a tensor of layout {}, wanted a strided one", call.info->name,
              c10::str(tensor.layout()));
  Alias& alias = alias_of(tensor);
  Value* const under_way = read_under_way(call, alias, is_written);
  if (under_way == nullptr && sees_contents(call, alias, is_written)) {
    LEVIN_CHECK(!alias.region->is_unwritten || !alias.region->is_released || is_written,
                "graph.record.released",
                "{} reads a tensor {} that was released and not written since; write it first, as "
                "by a gather",
                call.info->name, c10::str(tensor.sizes()));
    if (!alias.region->is_unwritten) {
      check_contents(alias, tensor);
    } else if (!(is_written && call.info->overwrites) || !is_untouched(*alias.region)) {
      freeze(alias, tensor);
      note_contents(*alias.region);
    }
  }
  call.reads.push_back({&alias, call.position, is_written});
  if (is_written) call.written.push_back(tensor);
  return under_way != nullptr ? under_way : current(alias);
}

/// Returns whether the memory's contents before the call matter to its contents after, or the
/// result.
bool Recorder::Impl::sees_contents(const Call& call, const Alias& alias, bool is_written) {
  if (!is_written) return !call.info->returns_view && !call.info->makes_unwritten;
  // Ranks have written there before they meet: the operator stands for their writes.
  if (call.info->name == "levin::barrier_") return false;
  const bool is_whole = alias.geometry.numel() == alias.region->base->geometry.numel();
  return !call.info->overwrites || !is_whole;
}

/// An offset counts from the first element of the argument, which the value of a view does not tell
/// once it has been computed anew; that of a base does.
void Recorder::Impl::read_from_base(Call& call) {
  const Alias& part = *call.reads.front().alias;
  Alias& base = *part.region->base;
  const c10::IValue& offset = *constant_of(call.arguments[3]);
  const int64_t from = offset.isNone() ? part.geometry.offset : offset.toInt();
  call.arguments[0] = current(base);
  call.arguments[3] = from - base.geometry.offset;
  call.reads.front().alias = &base;
}

/// equal(x, x), and of tensors of other sizes, is known without a look at their values.
bool Recorder::Impl::reads_on_host(const Call& call) const {
  const auto described = [&] {
    std::string text;
    for (const Call::Read& read : call.reads) {
      text +=
          fmt::format("{}{}{}", text.empty() ? "" : ", ", dtype_name(read.alias->geometry.dtype),
                      c10::str(read.alias->geometry.sizes));
    }
    return text;
  };
  if (call.info->is_equal) {
    const Alias& left = *call.reads[0].alias;
    const Alias& right = *call.reads[1].alias;
    if (&left == &right || left.geometry.sizes != right.geometry.sizes) return false;
  }
  LEVIN_CHECK(options.allow_host_reads, "graph.trace.host_read",
              "{} of {} returns a result that depends on values, and the graph would keep the "
              "result of this call; take it out of the function or set allow_host_reads",
              call.info->name, described());
  return true;
}

/// Within its memory a tensor only looks at it in another way; beyond it is new memory.
void Recorder::Impl::resize(const at::Tensor& tensor) {
  if (aliases.find(tensor) != nullptr) return;
  const Geometry geometry = Geometry::of(tensor);
  const std::vector<Region*> regions = aliases.overlapping(geometry);
  if (regions.size() == 1) {
    const auto whole = regions[0]->base->geometry.extent();
    const auto part = geometry.extent();
    if (whole.first <= part.first && part.second <= whole.second) return;
    LEVIN_CHECK(regions[0]->is_unwritten || regions[0]->base->geometry.numel() == 0,
                "graph.record.alias",
                "got resize_ of a tensor with contents, from {} to {} bytes, wanted one without "
                "contents; make a new tensor",
                whole.second - whole.first, part.second - part.first);
  }
  aliases.forget(tensor);
  aliases.add_base(tensor, append_unwritten(geometry)).region->is_unwritten = true;
}

/// New memory without contents.
Value& Recorder::Impl::append_unwritten(const Geometry& geometry) {
  const auto numbers = [](const at::DimVector& of) {
    return std::vector<int64_t>(of.begin(), of.end());
  };
  return append(
      op("aten::empty_strided"),
      {numbers(geometry.sizes), numbers(geometry.strides), static_cast<int64_t>(geometry.dtype),
       nullptr, Argument(c10::IValue(geometry.storage->device())), nullptr},
      geometry);
}

/// Returns the values of the results, as if an operator read each of them.
Values Recorder::Impl::values_of(const std::vector<at::Tensor>& results) {
  Call reads;
  reads.info = &op("aten::clone");
  Values values;
  for (const at::Tensor& result : results) {
    values.push_back(result.defined() ? read_tensor(reads, result, false) : nullptr);
  }
  return values;
}

Graph Recorder::Impl::finish(const std::vector<at::Tensor>& results) {
  if (options.watch_host) check_generators();
  check_all_contents();
  leave_under_way();
  const Values outputs = values_of(results);
  std::vector<Update> updates;
  for (const Region& region : aliases.regions()) {
    if (region.input == nullptr || region.version == 1) continue;
    updates.push_back({region.input, current(*region.base)});
  }
  for (Node* node : states) {
    const at::Tensor& tensor = node->tensor();
    if (!tensor.is_leaf() || !tensor.requires_grad() || !tensor.grad().defined()) continue;
    const at::Tensor& gradient = tensor.grad();
    Alias* alias = gradient.has_storage() ? aliases.find(gradient) : nullptr;
    if (alias == nullptr || alias->region->input != nullptr) continue;
    updates.push_back({&node->output(), current(*alias), /*is_gradient=*/true});
  }
  for (const at::Tensor& argument : arguments) {
    if (!argument.is_leaf() || !argument.requires_grad() || !argument.grad().defined()) continue;
    Alias* alias = argument.grad().has_storage() ? aliases.find(argument.grad()) : nullptr;
    if (alias == nullptr || alias->region->input != nullptr) continue;
    updates.push_back(
        {aliases.find(argument)->region->input, current(*alias), /*is_gradient=*/true});
  }
  if (random != nullptr) {
    updates.push_back({&graph.find_nodes(Opcode::kRandomState).front()->output(), random});
  }
  graph.set_outputs(outputs);
  graph.set_updates(updates);

  std::vector<std::vector<void*>> stacks;
  for (auto& [node, stack] : frames) stacks.push_back(std::move(stack));
  const std::vector<std::string> sources = sources_of(stacks);
  for (size_t i = 0; i < frames.size(); ++i) frames[i].first->source_ = sources[i];
  return std::move(graph);
}

}  // namespace levin::graph
