// Detects what the host does between operators: it writes into tensors, seeds and draws from
// generators, keeps tensors.
#define XXH_INLINE_ALL
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <c10/util/hash.h>
#include <xxhash.h>

#include <algorithm>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/graph/record/current_place.h"
#include "levin/graph/record/recorder_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// A larger result of an operator is compared in some blocks only: a kernel that rewrites it
/// seldom spares all of them. A tensor that an operator made for the host to fill is compared in
/// full.
constexpr size_t kLookedAtInFull = 1024;
constexpr size_t kBlocks = 16;
constexpr size_t kBlock = 64;

size_t hash_of(const char* bytes, size_t count) { return XXH3_64bits(bytes, count); }

size_t fingerprint_of(const Geometry& geometry, bool in_full) {
  const auto [begin, end] = geometry.extent();
  const auto* bytes = static_cast<const char*>(geometry.storage->data()) + begin;
  const auto count = static_cast<size_t>(end - begin);
  if (in_full || count <= kLookedAtInFull) return hash_of(bytes, count);
  size_t hash = 0;
  const size_t step = (count - kBlock) / (kBlocks - 1);
  for (size_t i = 0; i < kBlocks; ++i) {
    hash = hash * 31 + hash_of(bytes + i * step, kBlock);
  }
  return hash;
}

/// A GPU's is its seed and how far it has drawn, which the host knows.
size_t fingerprint_of(at::Generator generator) {
  const std::scoped_lock lock(generator.mutex());
  if (generator.device().is_cuda()) {
    return c10::get_hash(generator.current_seed(), generator.get_offset());
  }
  if (generator.device().type() != at::kCPU) return 0;
  const auto state = at::check_generator<at::CPUGeneratorImpl>(generator)->engine().data();
  return hash_of(reinterpret_cast<const char*>(&state), sizeof state);
}

bool is_seen_by_host(const Region& region) {
  const Geometry& whole = region.base->geometry;
  return whole.storage->device_type() == at::kCPU && whole.storage->data() != nullptr &&
         whole.numel() != 0;
}

/// Makes memory whose contents the host likes to fill.
bool makes_for_host(const OperatorInfo& info, bool reads_tensors) {
  if (!reads_tensors) return true;
  const std::string_view name = info.name;
  return name.starts_with("aten::clone") || name.starts_with("aten::_to_copy") ||
         name.starts_with("aten::new_") || name.find("_like") != std::string_view::npos ||
         name.starts_with("aten::copy_") || name.starts_with("aten::zero_") ||
         name.starts_with("aten::fill_");
}

}  // namespace

/// Called after an operator has written the region, or it was met.
void Recorder::Impl::note_contents(Region& region) {
  if (!options.watch_host || region.base == nullptr || !is_seen_by_host(region)) return;
  region.contents = fingerprint_of(region.base->geometry, region.is_for_host);
}

void Recorder::Impl::note_contents(const Call& call, Region& region) {
  if (!options.watch_host) return;
  if (call.info->name.ends_with("_start_")) {  // which other ranks still write
    region.contents.reset();
    return;
  }
  region.is_for_host = makes_for_host(*call.info, !call.reads.empty());
  note_contents(region);
}

/// Called before somebody reads it.
void Recorder::Impl::check_contents(Alias& alias, const at::Tensor& tensor) {
  Region& region = *alias.region;
  if (!options.watch_host || !region.contents || !is_seen_by_host(region)) return;
  const size_t now = fingerprint_of(region.base->geometry, region.is_for_host);
  if (now == *region.contents) return;
  LEVIN_CHECK(region.input == nullptr && region.is_for_host, "graph.record.host_write",
              "the host writes directly into a tensor {} that an operator has read or made{}; "
              "write it before the step, or with operators",
              c10::str(tensor.sizes()), current_place());
  freeze(alias, tensor);
  region.contents = now;
}

/// Returns whether the host has not filled memory that a factory has made. If operators fill it
/// part by part, as in torch::tensor({1, 2, 3}), nobody has written the other parts yet. A device's
/// memory is filled by operators; elements that they have not written differ in each call.
bool Recorder::Impl::is_untouched(const Region& region) const {
  if (region.is_released) return true;
  if (!options.watch_host) return false;
  if (region.base->geometry.storage->device_type() != at::kCPU) return true;
  if (!region.contents || !is_seen_by_host(region)) return false;
  return fingerprint_of(region.base->geometry, region.is_for_host) == *region.contents;
}

void Recorder::watch_state(const at::Tensor& tensor) {
  if (!impl_->options.watch_host || !tensor.defined() || !tensor.is_cpu()) return;
  if (tensor.layout() != at::kStrided || tensor.numel() == 0) return;
  const Geometry geometry = Geometry::of(tensor);
  impl_->watched.emplace(geometry,
                         Impl::Watched{tensor, fingerprint_of(geometry, /*in_full=*/false)});
}

/// When an operator meets it for the first time, or none does.
void Recorder::Impl::check_contents_before(const at::Tensor& tensor,
                                           const Geometry& geometry) const {
  const auto known = watched.find(geometry);
  if (known == watched.end()) return;
  LEVIN_CHECK(fingerprint_of(geometry, /*in_full=*/false) == known->second.contents,
              "graph.record.host_write",
              "the host writes directly into a parameter or buffer {}{}; write it before the step, "
              "or with operators",
              c10::str(tensor.sizes()), current_place());
}

/// Checks the tensors that existed before the recording.
void Recorder::Impl::check_all_contents() {
  if (!options.watch_host) return;
  for (const auto& [geometry, state] : watched) {
    if (aliases.find(state.tensor) == nullptr) check_contents_before(state.tensor, geometry);
  }
  for (const Region& region : aliases.regions()) {
    if (region.base == nullptr || region.input == nullptr || !region.contents) continue;
    const bool is_same =
        !is_seen_by_host(region) ||
        fingerprint_of(region.base->geometry, region.is_for_host) == *region.contents;
    LEVIN_CHECK(is_same, "graph.record.host_write",
                "the host writes directly into a tensor {} that operators use; write it before the "
                "step, or with operators",
                c10::str(at::IntArrayRef(region.base->geometry.sizes)));
  }
}

/// Registers the generators that a call without a generator draws from.
void Recorder::Impl::meet_default_generators() {
  meet_generator(at::detail::getDefaultCPUGenerator());
  if (!at::hasCUDA()) return;
  const auto& cuda = at::detail::getCUDAHooks();
  for (c10::DeviceIndex i = 0; i < cuda.deviceCount(); ++i) {
    const bool is_used = cuda.hasPrimaryContext(i);
    if (is_used) meet_generator(at::globalContext().defaultGenerator({at::kCUDA, i}));
  }
}

void Recorder::Impl::meet_generator(const at::Generator& generator) {
  const auto known = std::ranges::find(generators, generator, &Generator::generator);
  if (known == generators.end()) generators.push_back({generator, fingerprint_of(generator)});
}

/// Called before an operator draws from a generator, and at the end.
void Recorder::Impl::check_generators() {
  for (const Generator& known : generators) {
    LEVIN_CHECK(fingerprint_of(known.generator) == known.fingerprint, "graph.record.generator",
                "the host seeds a random generator, or draws from it{}; seed it before the step, "
                "and draw with operators (torch::rand)",
                current_place());
  }
}

void Recorder::Impl::note_generators(const std::vector<c10::IValue>& arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isGenerator() && argument.toGenerator().defined()) {
      meet_generator(argument.toGenerator());
    }
  }
}

void Recorder::Impl::note_draws() {
  for (Generator& known : generators) known.fingerprint = fingerprint_of(known.generator);
}

/// Returns whether the node is not the one that was recorded at this place before.
bool Recorder::Impl::is_unexpected(const Node& node) {
  is_expected_result = false;
  if (options.expected == nullptr || !is_as_expected) return false;
  const Graph::Nodes& nodes = options.expected->nodes();
  if (num_expected++ == 0) {
    expected = nodes.begin();
    for (const Value* output : options.expected->outputs()) {
      if (output != nullptr) expected_results.insert(&output->node());
    }
  }
  while (expected != nodes.end() && expected->opcode() != Opcode::kCallFunction) ++expected;
  is_as_expected = expected != nodes.end() && expected->target() == node.target() &&
                   expected->arguments().size() == node.arguments().size();
  for (size_t i = 0; is_as_expected && i < node.arguments().size(); ++i) {
    const Argument& was = expected->arguments()[i];
    const Argument& is = node.arguments()[i];
    is_as_expected = was.index() == is.index();
    if (!is_as_expected || constant_of(was) == nullptr) continue;
    is_as_expected = is_same_constant(*constant_of(was), *constant_of(is));
  }
  for (size_t i = 0; is_as_expected && i < node.outputs().size(); ++i) {
    is_as_expected = i < expected->outputs().size() &&
                     expected->outputs()[i]->type() == node.outputs()[i]->type();
  }
  if (expected != nodes.end()) {
    is_expected_result = expected_results.contains(&*expected);
    ++expected;
  }
  return !is_as_expected;
}

bool Recorder::Impl::is_expected_state(const at::Tensor& tensor) const {
  if (options.expected == nullptr) return true;
  return expected_state.contains(tensor.storage().unsafeGetStorageImpl());
}

bool Recorder::Impl::is_expected_constant(const std::string& name,
                                          const at::Tensor& contents) const {
  if (options.expected == nullptr) return true;
  return std::ranges::any_of(options.expected->nodes(), [&](const Node& node) {
    return node.opcode() == Opcode::kGetAttr && node.name() == name &&
           node.tensor().scalar_type() == contents.scalar_type() &&
           at::equal(node.tensor(), contents);
  });
}

std::vector<KeptTensor> Recorder::kept(const std::vector<at::Tensor>& accounted) const {
  std::unordered_map<const c10::StorageImpl*, size_t> known;
  std::unordered_set<const c10::TensorImpl*> counted;
  const auto account = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    if (!counted.insert(tensor.unsafeGetTensorImpl()).second) return;
    ++known[tensor.storage().unsafeGetStorageImpl()];
  };
  for (const at::Tensor& tensor : accounted) account(tensor);
  // One that somebody holds beside the tensor that it is of, too, is kept.
  const auto account_gradient = [&](const at::Tensor& tensor) {
    if (tensor.is_leaf() && tensor.grad().use_count() == 1) account(tensor.grad());
  };
  for (const at::Tensor& argument : impl_->arguments) account_gradient(argument);
  for (const Node* node : impl_->states) account_gradient(node->tensor());
  std::vector<KeptTensor> kept = impl_->aliases.alive(known);
  for (KeptTensor& tensor : kept) {
    const auto frames = impl_->frames_of_results.find(tensor.node);
    if (frames != impl_->frames_of_results.end()) tensor.frames = frames->second;
    tensor.node = nullptr;
  }
  return kept;
}

}  // namespace levin::graph
