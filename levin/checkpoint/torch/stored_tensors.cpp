#include "levin/checkpoint/torch/stored_tensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/checkpoint/torch/dtypes_impl.h"
#include "levin/checkpoint/torch/torch_file.h"

namespace levin::detail {
namespace {

// The elements of every dtype begin at a multiple of their own size, which divides this.
constexpr int64_t kLargestElement = 16;

/// A tensor and the bytes of its storage that its elements lie in.
struct View {
  at::Tensor tensor;
  int64_t begin = 0, end = 0;

  bool has_same_elements(const View& other) const {
    return begin == other.begin && tensor.scalar_type() == other.tensor.scalar_type() &&
           tensor.sizes() == other.tensor.sizes() && tensor.strides() == other.tensor.strides();
  }
  /// Returns whether its memory has bytes between those of its elements.
  bool has_gaps() const { return end - begin > static_cast<int64_t>(tensor.nbytes()); }
};

void check_utf8(const std::string& name) {
  LEVIN_CHECK(utf8::invalid_byte(name) == std::string_view::npos, "checkpoint.path",
              "the name '{}' is not UTF-8, which Python requires; rename it", printable(name));
}

/// Returns the reason why a tensor cannot be written; empty where it can.
std::string reason_not_written(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  if (tensor.is_nested()) return "a nested tensor";
  if (tensor.layout() != at::kStrided) return "a sparse tensor";
  if (tensor.is_meta()) return "a tensor on the meta device, without values";
  const bool is_known = std::ranges::find(kTorchDtypes, tensor.scalar_type(), &TorchDtype::type) !=
                        kTorchDtypes.end();
  return is_known ? "" : fmt::format("of dtype {}", c10::toString(tensor.scalar_type()));
}

View view_of(const std::string& name, const at::Tensor& given) {
  const std::string reason = reason_not_written(given);
  LEVIN_CHECK(reason.empty(), "checkpoint.dtype",
              "{} is {}, which levin cannot write to a file of torch.save; convert it first or "
              "leave it out",
              printable(name), reason);
  View view{given.detach().resolve_conj().resolve_neg()};
  const at::Tensor& tensor = view.tensor;
  const auto width = static_cast<int64_t>(tensor.element_size());
  view.begin = view.end = tensor.storage_offset() * width;
  if (tensor.numel() == 0) return view;
  int64_t last = 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  view.end += (last + 1) * width;
  return view;
}

std::vector<int64_t> row_major_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = step;
    step *= std::max<int64_t>(sizes[dim], 1);
  }
  return strides;
}

/// Returns whether tensors of that device are views of one run of bytes.
bool has_plain_memory(const at::Tensor& tensor) { return tensor.is_cpu() || tensor.is_cuda(); }

class Planner {
 public:
  explicit Planner(const State& state) {
    for (const auto& [name, value] : state.values()) {
      check_utf8(name);
      views_.push_back(view_of(name, whole_tensor(state, name)));
      plan_.tensors.push_back({.name = name});
    }
  }

  StoredTensors plan() {
    std::map<const c10::StorageImpl*, std::vector<size_t>> by_storage;
    for (size_t i = 0; i < views_.size(); ++i) {
      by_storage[views_[i].tensor.storage().unsafeGetStorageImpl()].push_back(i);
    }
    for (auto& [storage, members] : by_storage) divide(members);
    // Numbered as the file's reader meets them.
    std::ranges::sort(runs_, {}, [](const auto& run) { return std::ranges::min(run); });
    for (const std::vector<size_t>& run : runs_) add(run);
    return std::move(plan_);
  }

 private:
  /// Into runs of tensors that have elements in common.
  void divide(std::vector<size_t>& members) {
    std::erase_if(members, [&](size_t i) {
      const bool is_empty = views_[i].begin == views_[i].end;
      if (is_empty) runs_.push_back({i});
      return is_empty;
    });
    std::ranges::stable_sort(members, {}, [&](size_t i) {
      const at::Tensor& tensor = views_[i].tensor;
      return std::tuple(views_[i].begin, tensor.sizes().vec(), tensor.strides().vec());
    });
    int64_t end = 0;
    for (const size_t i : members) {
      const View& view = views_[i];
      const bool is_first = i == members.front();
      const bool joins = has_plain_memory(view.tensor)
                             ? view.begin < end
                             : !is_first && view.has_same_elements(views_[runs_.back().back()]);
      if (is_first || !joins) {
        runs_.emplace_back();
        end = view.end;
      }
      runs_.back().push_back(i);
      end = std::max(end, view.end);
    }
  }

  void add(const std::vector<size_t>& run) {
    const View& first = views_[run.front()];
    StoredMemory memory{.tensor = first.tensor, .begin = first.begin};
    bool is_one = true;
    int64_t end = first.end;
    for (const size_t i : run) {
      is_one = is_one && views_[i].has_same_elements(first);
      memory.is_mixed |= views_[i].tensor.scalar_type() != first.tensor.scalar_type();
      end = std::max(end, views_[i].end);
    }
    if (memory.is_mixed) memory.begin -= memory.begin % kLargestElement;
    memory.is_packed = !has_plain_memory(first.tensor) || (is_one && first.has_gaps());
    memory.bytes =
        memory.is_packed ? static_cast<int64_t>(first.tensor.nbytes()) : end - memory.begin;
    LEVIN_CHECK(memory.is_packed || end <= static_cast<int64_t>(first.tensor.storage().nbytes()),
                "checkpoint.dtype", "{} has no memory (its storage holds {} bytes, wanted {})",
                printable(plan_.tensors[run.front()].name), first.tensor.storage().nbytes(), end);
    for (const size_t i : run) place(i, memory);
    plan_.memory.push_back(std::move(memory));
  }

  void place(size_t i, const StoredMemory& memory) {
    const at::Tensor& tensor = views_[i].tensor;
    StoredTensor& stored = plan_.tensors[i];
    stored.memory = plan_.memory.size();
    stored.dtype = tensor.scalar_type();
    stored.sizes = tensor.sizes().vec();
    stored.strides = memory.is_packed ? row_major_strides(tensor.sizes()) : tensor.strides().vec();
    if (memory.is_packed) return;
    stored.offset = (views_[i].begin - memory.begin) / static_cast<int64_t>(tensor.element_size());
  }

  std::vector<View> views_;                // one a tensor
  std::vector<std::vector<size_t>> runs_;  // places in views_
  StoredTensors plan_;
};

}  // namespace

StoredTensors stored_tensors(const State& state) { return Planner(state).plan(); }

at::Tensor bytes_of(const StoredMemory& memory) {
  if (memory.is_packed) return plain(memory.tensor).view(-1).view(at::kByte);
  at::Tensor run = at::empty({0}, memory.tensor.options().dtype(at::kByte));
  if (memory.bytes == 0) return run.cpu();
  run.set_(memory.tensor.storage(), memory.begin, {memory.bytes}, {1});
  return run.cpu();
}

}  // namespace levin::detail

namespace levin {

State cast_floating(const State& weights, at::ScalarType dtype) {
  const detail::StoredTensors plan = detail::stored_tensors(weights);
  std::vector<at::Tensor> memory(plan.memory.size());
  State cast;
  for (const detail::StoredTensor& stored : plan.tensors) {
    const at::Tensor& tensor = weights.tensor(stored.name);
    const detail::StoredMemory& own = plan.memory[stored.memory];
    if (!tensor.is_floating_point() || tensor.scalar_type() == dtype) {
      cast.set(stored.name, tensor);
    } else if (own.is_mixed || tensor.numel() == 0) {
      cast.set(stored.name, tensor.to(dtype));
    } else {
      at::Tensor& values = memory[stored.memory];
      if (!values.defined()) values = detail::bytes_of(own).view(stored.dtype).to(dtype);
      cast.set(stored.name, values.as_strided(stored.sizes, stored.strides, stored.offset));
    }
  }
  return cast;
}

}  // namespace levin
