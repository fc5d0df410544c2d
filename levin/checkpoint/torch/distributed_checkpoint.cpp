// Folders of torch.distributed.checkpoint: a pickle, .metadata, says which part of which tensor lies
// where in the ranks' files, each part as torch.save writes a tensor.

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/torch/archive_impl.h"
#include "levin/checkpoint/torch/torch_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;
using detail::Pickle;
using detail::PickleValue;
using detail::TorchArchive;
using Kind = PickleValue::Kind;

constexpr size_t kLongestPath = 200;

/// Where a part of a tensor, or another value, lies.
struct Stored {
  std::vector<int64_t> offsets;  ///< in the whole tensor
  std::string file;
  int64_t begin = 0, length = 0;  ///< bytes of the file
};

/// A tree in the making.
struct Branch {
  std::map<std::string, Branch> children;
  std::optional<State::Value> value;

  State state() && {
    State state;
    for (auto& [name, child] : children) {
      if (child.value) {
        detail::set_value(state, name, *std::move(child.value));
      } else {
        state.set(name, std::move(child).state());
      }
    }
    return state;
  }
};

class Reader {
 public:
  explicit Reader(fs::path folder)
      : folder_(std::move(folder)),
        map_(folder_ / ".metadata"),
        metadata_(map_.bytes(), (folder_ / ".metadata").string()) {}

  State read() {
    const PickleValue& top = metadata_.top();
    if (!top.is_object_of("torch.distributed.checkpoint.metadata Metadata")) {
      fail(".metadata is not that of torch.distributed.checkpoint");
    }
    note_stored(part(top, "storage_data"));
    const PickleValue* paths = top.find("planner_data");
    Branch tree;
    for (const auto& [name, what] : part(top, "state_dict_metadata").entries) {
      auto value = value_of(name->text, *what);
      if (value) place(tree, paths, name->text).value = std::move(value);
    }
    return std::move(tree).state();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    LEVIN_FAIL("checkpoint.torch", "{} cannot be read: {}", folder_.string(), printable(what));
  }

  const PickleValue& part(const PickleValue& value, std::string_view name) const {
    const PickleValue* found = value.find(name);
    if (found == nullptr) fail(fmt::format(".metadata lacks {}", name));
    return *found;
  }

  /// torch.Size((2, 3)); none of None.
  std::vector<int64_t> numbers(const PickleValue& size) const {
    std::vector<int64_t> all;
    if (!size.is_object_of("torch Size")) return all;
    for (const PickleValue* tuple : size.arguments->items) {
      for (const PickleValue* number : tuple->items) {
        if (!number->is(Kind::kInteger) || number->integer < 0)
          fail(".metadata has no sizes there");
        all.push_back(number->integer);
      }
    }
    return all;
  }

  void note_stored(const PickleValue& storage) {
    for (const auto& [index, info] : storage.entries) {
      const PickleValue* transforms = info->find("transform_descriptors");
      if (transforms != nullptr && !transforms->items.empty()) {
        fail("its parts are compressed or encoded; save it without extensions");
      }
      Stored stored = {.file = part(*info, "relative_path").text,
                       .begin = part(*info, "offset").integer,
                       .length = part(*info, "length").integer};
      if (const PickleValue* offsets = index->find("offset")) stored.offsets = numbers(*offsets);
      if (!detail::is_plain_name(stored.file)) {
        fail(fmt::format("it names the file {}, which is not one of its folder", stored.file));
      }
      stored_[part(*index, "fqn").text].push_back(std::move(stored));
    }
  }

  std::optional<State::Value> value_of(const std::string& name, const PickleValue& what) {
    const auto& parts = stored_[name];
    if (what.is_object_of("torch.distributed.checkpoint.metadata TensorStorageMetadata")) {
      return whole(name, numbers(part(what, "size")), parts);
    }
    if (parts.size() != 1) fail(fmt::format("{} lies nowhere", name));
    const auto archive = open(parts.front());
    return archive->value_of(archive->top());
  }

  std::unique_ptr<TorchArchive> open(const Stored& stored) {
    auto& map = files_[stored.file];
    if (map == nullptr) map = std::make_shared<const files::MemoryMap>(folder_ / stored.file);
    const auto bytes = map->bytes();
    const auto size = std::ssize(bytes);
    const bool inside = stored.begin >= 0 && stored.begin <= size && stored.length >= 0 &&
                        stored.length <= size - stored.begin;
    if (!inside) fail(fmt::format("{} has {} bytes, fewer than .metadata says", stored.file, size));
    return std::make_unique<TorchArchive>(
        map, bytes.subspan(static_cast<size_t>(stored.begin), static_cast<size_t>(stored.length)),
        (folder_ / stored.file).string());
  }

  at::Tensor tensor_in(const std::string& name, const Stored& stored) {
    const auto archive = open(stored);
    const auto tensor = archive->tensor_of(archive->top());
    if (!tensor) fail(fmt::format("a part of {} is no tensor", name));
    return *tensor;
  }

  at::Tensor whole(const std::string& name, const std::vector<int64_t>& sizes,
                   const std::vector<Stored>& parts) {
    std::vector<at::Tensor> tensors;
    for (const Stored& stored : parts) tensors.push_back(tensor_in(name, stored));
    check_parts(name, sizes, parts, tensors);
    if (tensors.size() == 1) return tensors.front();
    at::Tensor all = at::empty(sizes, tensors.front().options());
    for (size_t i = 0; i < parts.size(); ++i) {
      at::Tensor place = all;
      for (size_t dim = 0; dim < sizes.size(); ++dim) {
        place = place.narrow(static_cast<int64_t>(dim), parts[i].offsets[dim],
                             tensors[i].size(static_cast<int64_t>(dim)));
      }
      place.copy_(tensors[i]);
    }
    return all;
  }

  // Inside, apart from each other and as many elements as the whole: then nothing is missing.
  void check_parts(const std::string& name, const std::vector<int64_t>& sizes,
                   const std::vector<Stored>& parts, const std::vector<at::Tensor>& tensors) const {
    int64_t wanted = 1, found = 0;
    bool fits = !parts.empty();
    for (const int64_t size : sizes) fits = fits && !__builtin_mul_overflow(wanted, size, &wanted);
    for (size_t i = 0; fits && i < parts.size(); ++i) {
      found += tensors[i].numel();
      fits = tensors[i].dim() == std::ssize(sizes) && parts[i].offsets.size() == sizes.size() &&
             tensors[i].scalar_type() == tensors[0].scalar_type();
      for (size_t dim = 0; fits && dim < sizes.size(); ++dim) {
        fits = parts[i].offsets[dim] <= sizes[dim] - tensors[i].sizes()[dim];
      }
      for (size_t other = 0; fits && other < i; ++other) {
        fits = apart(parts[i], tensors[i], parts[other], tensors[other]);
      }
    }
    if (!fits || found != wanted) {
      fail(fmt::format("the parts of {} do not make {} elements of [{}]", name, wanted,
                       fmt::join(sizes, ", ")));
    }
  }

  static bool apart(const Stored& a, const at::Tensor& own, const Stored& b,
                    const at::Tensor& other) {
    if (own.numel() == 0 || other.numel() == 0) return true;
    for (size_t dim = 0; dim < a.offsets.size(); ++dim) {
      const int64_t from = std::max(a.offsets[dim], b.offsets[dim]);
      const int64_t to =
          std::min(a.offsets[dim] + own.sizes()[dim], b.offsets[dim] + other.sizes()[dim]);
      if (from >= to) return true;
    }
    return false;
  }

  /// Where in the tree that was saved: {"optim.state.0.step": ("optim", "state", 0, "step")}.
  Branch& place(Branch& tree, const PickleValue* paths, const std::string& name) const {
    const PickleValue* path = paths == nullptr ? nullptr : paths->find(name);
    if (path == nullptr || path->items.empty()) return tree.children[name];
    if (path->items.size() > kLongestPath) fail("its dicts are too deep");
    Branch* at = &tree;
    for (const PickleValue* step : path->items) {
      at = &at->children[step->is(Kind::kInteger) ? std::to_string(step->integer) : step->text];
    }
    return *at;
  }

  fs::path folder_;
  files::MemoryMap map_;
  Pickle metadata_;
  std::map<std::string, std::vector<Stored>> stored_;
  std::map<std::string, std::shared_ptr<const files::MemoryMap>> files_;
};

}  // namespace

State load_distributed_checkpoint(const fs::path& folder) { return Reader(folder).read(); }

}  // namespace levin
