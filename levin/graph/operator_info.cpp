#include "levin/graph/operator_info.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace levin::graph {
namespace {

using std::string_view;

/// Schemas that do not say which arguments the kernel writes in training: the running statistics.
constexpr std::array<std::pair<string_view, std::array<size_t, 2>>, 6> kUndeclaredWrites = {{
    {"aten::native_batch_norm", {3, 4}},
    {"aten::cudnn_batch_norm", {3, 4}},
    {"aten::miopen_batch_norm", {3, 4}},
    {"aten::batch_norm_update_stats", {1, 2}},
    {"aten::batch_norm_gather_stats", {3, 4}},
    {"aten::batch_norm_gather_stats_with_counts", {3, 4}},
}};

constexpr std::array kMakeUnwritten = {
    string_view("aten::empty"),          string_view("aten::empty_strided"),
    string_view("aten::empty_like"),     string_view("aten::new_empty"),
    string_view("aten::empty_permuted"), string_view("aten::new_empty_strided")};

constexpr std::array kOverwrite = {string_view("levin::all_gather_"),
                                   string_view("levin::all_gather_start_"),
                                   string_view("levin::all_to_all_"),
                                   string_view("levin::all_to_all_start_"),
                                   string_view("levin::recv_"),
                                   string_view("levin::recv_start_"),
                                   string_view("levin::reduce_scatter_"),
                                   string_view("levin::reduce_scatter_start_"),
                                   string_view("aten::copy_"),
                                   string_view("aten::fill_"),
                                   string_view("aten::zero_"),
                                   string_view("aten::normal_"),
                                   string_view("aten::uniform_"),
                                   string_view("aten::random_"),
                                   string_view("aten::bernoulli_"),
                                   string_view("aten::exponential_"),
                                   string_view("aten::geometric_"),
                                   string_view("aten::cauchy_"),
                                   string_view("aten::log_normal_"),
                                   string_view("aten::_foreach_copy_"),
                                   string_view("aten::_foreach_zero_")};

/// The sizes of their results depend on values, and no tag says so.
constexpr std::array kUntaggedHostReads = {string_view("aten::_pack_padded_sequence")};

constexpr std::array<std::pair<string_view, ViewKind>, 17> kViews = {{
    {"aten::slice", ViewKind::kSlice},
    {"aten::select", ViewKind::kSelect},
    {"aten::diagonal", ViewKind::kDiagonal},
    {"aten::split", ViewKind::kSplit},
    {"aten::split_with_sizes", ViewKind::kSplit},
    {"aten::unbind", ViewKind::kUnbind},
    {"aten::transpose", ViewKind::kTranspose},
    {"aten::permute", ViewKind::kPermute},
    {"aten::unsqueeze", ViewKind::kReshape},
    {"aten::squeeze", ViewKind::kReshape},
    {"aten::_unsafe_view", ViewKind::kReshape},
    {"aten::_reshape_alias", ViewKind::kReshape},
    {"aten::t", ViewKind::kInvolution},
    {"aten::_conj", ViewKind::kInvolution},
    {"aten::_neg_view", ViewKind::kInvolution},
    {"aten::view_as_real", ViewKind::kAsReal},
    {"aten::view_as_complex", ViewKind::kAsComplex},
}};

/// Beside those of a kind of their own.
constexpr std::array kStridedViews = {string_view("aten::expand"), string_view("aten::as_strided"),
                                      string_view("aten::unfold"), string_view("aten::alias"),
                                      string_view("aten::detach"), string_view("aten::chunk")};

template <class List>
bool contains(const List& list, string_view name) {
  return std::ranges::find(list, name) != list.end();
}

ViewKind view_kind(string_view base, string_view overload) {
  if (base == "aten::view") return overload == "dtype" ? ViewKind::kDtype : ViewKind::kReshape;
  for (const auto& [name, kind] : kViews) {
    if (name == base) return kind;
  }
  return ViewKind::kStrided;
}

bool takes_generator(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    const c10::Type* type = argument.type().get();
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      type = optional->getElementType().get();
    }
    return type->kind() == c10::TypeKind::GeneratorType;
  });
}

bool takes_group(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.type()->kind() == c10::TypeKind::ClassType &&
           argument.type()->str() == "__torch__.torch.classes.levin.ProcessGroup";
  });
}

class KnownOperators {
 public:
  KnownOperators()
      : forgetting_(c10::Dispatcher::singleton().addRegistrationListener(
            std::make_unique<Listener>(*this))) {}

  const OperatorInfo& of(const c10::OperatorHandle& op) {
    const std::scoped_lock lock(mutex_);
    const OperatorInfo*& known = by_schema_[&op.schema()];
    if (known == nullptr) known = &infos_.emplace_back(op);
    return *known;
  }

 private:
  /// Forgets an operator that is deregistered: another schema may come to lie at its address.
  struct Listener final : c10::OpRegistrationListener {
    explicit Listener(KnownOperators& known) : known(known) {}
    void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
    void onOperatorDeregistered(const c10::OperatorHandle& op) override { known.forget(op); }
    KnownOperators& known;
  };

  void forget(const c10::OperatorHandle& op) {
    const std::scoped_lock lock(mutex_);
    by_schema_.erase(&op.schema());
  }

  std::mutex mutex_;
  std::deque<OperatorInfo> infos_;
  std::unordered_map<const c10::FunctionSchema*, const OperatorInfo*> by_schema_;
  c10::RegistrationHandleRAII forgetting_;
};

}  // namespace

std::vector<size_t> written_arguments(const c10::FunctionSchema& schema) {
  for (const auto& [name, arguments] : kUndeclaredWrites) {
    if (name == schema.name()) return {arguments.begin(), arguments.end()};
  }
  std::vector<size_t> written;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_written(schema.arguments()[i])) written.push_back(i);
  }
  return written;
}

const OperatorInfo& info_of(const c10::OperatorHandle& op) {
  // Never destroyed: libraries take their operators back while the process ends.
  static auto& known = *new KnownOperators();
  return known.of(op);
}

OperatorInfo::OperatorInfo(const c10::OperatorHandle& handle) : op(handle) {
  const c10::FunctionSchema& schema = op.schema();
  const string_view base = schema.name();
  name = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  written = written_arguments(schema);
  for (const c10::Argument& result : schema.returns()) {
    is_result.push_back(result.alias_info() == nullptr || !result.alias_info()->isWrite());
  }
  view = view_kind(base, schema.overload_name());
  returns_view = view != ViewKind::kStrided;
  for (const c10::Argument& result : schema.returns()) {
    returns_view |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  is_always_view = view != ViewKind::kStrided || (returns_view && contains(kStridedViews, base));
  is_random = op.hasTag(at::Tag::nondeterministic_seeded) || takes_generator(schema);
  is_host_read = op.hasTag(at::Tag::data_dependent_output) ||
                 op.hasTag(at::Tag::dynamic_output_shape) || contains(kUntaggedHostReads, base);
  is_inplace_view = op.hasTag(at::Tag::inplace_view);
  makes_unwritten = contains(kMakeUnwritten, base);
  const bool is_out = !written.empty() && schema.arguments()[written.front()].is_out();
  overwrites = is_out || contains(kOverwrite, base);
  is_equal = base == "aten::equal";
  is_collective = base.starts_with("levin::") && takes_group(schema);
  is_start = is_collective && base.ends_with("_start_");
  is_wait = base == "levin::wait_";
}

}  // namespace levin::graph
