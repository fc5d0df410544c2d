// Folders of torch.distributed.checkpoint: a pickle, .metadata, lists the parts of tensors with
// their places in the ranks' files, each part as torch.save writes a tensor.

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
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
constexpr size_t kLongestFileName = 255;
constexpr size_t kMostDims = 64;    // as LibTorch's operators take
constexpr size_t kMostFields = 64;  // fields of one of its classes

/// The place of a part of a tensor, or of another value.
struct Stored {
  std::vector<int64_t> offsets;  ///< in the full tensor
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
        metadata_(map_.bytes(), (folder_ / ".metadata").string()),
        budget_(map_.bytes().size()) {}

  State read() {
    const PickleValue& top = metadata_.top();
    if (!top.is_object_of("torch.distributed.checkpoint.metadata Metadata")) {
      fail(".metadata is not of torch.distributed.checkpoint");
    }
    note_stored(part(top, "storage_data"));
    check_sizes();
    if (const PickleValue* paths = top.find("planner_data")) {
      for (const auto& [name, path] : paths->entries) paths_[name->text] = path;
    }
    Branch tree;
    for (const auto& [name, what] : part(top, "state_dict_metadata").entries) {
      auto value = value_of(own_text(name->text), *what);
      if (value) place(tree, name->text).value = std::move(value);
    }
    return std::move(tree).state();
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    LEVIN_FAIL("checkpoint.torch", "{} cannot be read: {}", folder_.string(), printable(what));
  }

  std::string own_text(std::string_view text) {
    if (!budget_.take_text(text.size())) fail(".metadata refers to long texts too many times");
    return std::string(text);
  }

  const PickleValue& part(const PickleValue& value, std::string_view name) const {
    const PickleValue& fields =
        value.is(Kind::kObject) && value.state != nullptr ? *value.state : value;
    if (fields.entries.size() > kMostFields) fail(".metadata is not as PyTorch writes it");
    const PickleValue* found = value.find(name);
    if (found == nullptr) fail(fmt::format(".metadata lacks {}", name));
    return *found;
  }

  /// torch.Size((2, 3)); none of None.
  std::vector<int64_t> numbers(const PickleValue& size) const {
    std::vector<int64_t> all;
    if (!size.is_object_of("torch Size")) return all;
    for (const PickleValue* tuple : size.arguments->items) {
      if (tuple->items.size() + all.size() > kMostDims) fail(".metadata has too many dims there");
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
      const std::string_view file = part(*info, "relative_path").text;
      const PickleValue* transforms = info->find("transform_descriptors");
      if (transforms != nullptr && !transforms->items.empty()) {
        fail("its parts are compressed or encoded; save it without extensions");
      }
      if (file.size() > kLongestFileName) fail("it has a file name that is too long");
      Stored stored = {.file = std::string(file),
                       .begin = part(*info, "offset").integer,
                       .length = part(*info, "length").integer};
      std::string name = own_text(part(*index, "fqn").text);
      if (const PickleValue* offsets = index->find("offset")) stored.offsets = numbers(*offsets);
      if (!detail::is_plain_name(stored.file)) {
        fail(fmt::format("it names the file {}, which is not a file of its folder", stored.file));
      }
      stored_[std::move(name)].push_back(std::move(stored));
    }
  }

  // Each part lies in bytes of its own: what is made of them is bounded by the files.
  void check_sizes() {
    std::map<std::string, int64_t> left;
    for (const auto& [name, parts] : stored_) {
      for (const Stored& stored : parts) {
        const auto [at, is_new] = left.emplace(stored.file, 0);
        const int64_t size = std::ssize(map_of(stored.file).bytes());
        if (is_new) at->second = size;
        if (stored.length < 0 || stored.length > at->second) {
          fail(fmt::format("{} has {} bytes, fewer than .metadata says", stored.file, size));
        }
        at->second -= stored.length;
      }
    }
    size_t bytes = map_.bytes().size();
    for (const auto& [file, map] : files_) bytes += map->bytes().size();
    budget_ = detail::TorchBudget(bytes);
  }

  const files::MemoryMap& map_of(const std::string& file) {
    auto& map = files_[file];
    if (map == nullptr) map = std::make_shared<const files::MemoryMap>(folder_ / file);
    return *map;
  }

  std::optional<State::Value> value_of(const std::string& name, const PickleValue& what) {
    const auto& parts = stored_[name];
    if (what.is_object_of("torch.distributed.checkpoint.metadata TensorStorageMetadata")) {
      return whole(name, numbers(part(what, "size")), parts);
    }
    if (parts.size() != 1) fail(fmt::format("no file holds {}", name));
    const auto archive = open(parts.front());
    return archive->value_of(archive->top());
  }

  std::unique_ptr<TorchArchive> open(const Stored& stored) {
    const auto bytes = map_of(stored.file).bytes();
    const auto size = std::ssize(bytes);
    const bool inside = stored.begin >= 0 && stored.begin <= size && stored.length >= 0 &&
                        stored.length <= size - stored.begin;
    if (!inside) fail(fmt::format("{} has {} bytes, fewer than .metadata says", stored.file, size));
    return std::make_unique<TorchArchive>(
        files_.at(stored.file),
        bytes.subspan(static_cast<size_t>(stored.begin), static_cast<size_t>(stored.length)),
        (folder_ / stored.file).string(), budget_);
  }

  at::Tensor tensor_in(const std::string& name, const Stored& stored) {
    const auto archive = open(stored);
    const auto tensor = archive->tensor_of(archive->top());
    if (!tensor) fail(fmt::format("a part of {} is not a tensor", name));
    // PyTorch copies what repeats its memory before it writes a part.
    if (tensor->nbytes() > static_cast<size_t>(stored.length)) {
      fail(fmt::format("a part of {} has {} bytes in {} of its file", name, tensor->nbytes(),
                       stored.length));
    }
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
    }
    if (!fits || found != wanted || !are_apart(parts, tensors)) {
      fail(fmt::format("the parts of {} do not add up to the {} elements of [{}]", name, wanted,
                       fmt::join(sizes, ", ")));
    }
  }

  /// Compares each part with those alone that overlap it along the dim that is cut most often.
  static bool are_apart(const std::vector<Stored>& parts, const std::vector<at::Tensor>& tensors) {
    const size_t dims = parts.front().offsets.size();
    size_t along = 0, most = 0;
    for (size_t dim = 0; dim < dims; ++dim) {
      std::set<int64_t> places;
      for (const Stored& part : parts) places.insert(part.offsets[dim]);
      if (places.size() > most) {
        most = places.size();
        along = dim;
      }
    }
    std::vector<size_t> order(parts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto begin = [&](size_t i) { return dims == 0 ? 0 : parts[i].offsets[along]; };
    std::ranges::sort(order, {}, begin);
    for (size_t i = 0; i < order.size(); ++i) {
      if (tensors[order[i]].numel() == 0) continue;
      const int64_t end = dims == 0 ? 1 : begin(order[i]) + tensors[order[i]].sizes()[along];
      for (size_t j = i + 1; j < order.size() && begin(order[j]) < end; ++j) {
        if (!apart(parts[order[i]], tensors[order[i]], parts[order[j]], tensors[order[j]])) {
          return false;
        }
      }
    }
    return true;
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

  /// Returns the branch in the tree that was saved: {"optim.state.0.step": ("optim", "state", 0,
  /// "step")}.
  Branch& place(Branch& tree, std::string_view name) {
    const auto found = paths_.find(name);
    const PickleValue* path = found == paths_.end() ? nullptr : found->second;
    if (path == nullptr || path->items.empty()) return tree.children[std::string(name)];
    if (path->items.size() > kLongestPath) fail("its dicts are too deep");
    Branch* at = &tree;
    for (const PickleValue* step : path->items) {
      at = &at->children[step->is(Kind::kInteger) ? std::to_string(step->integer)
                                                  : own_text(step->text)];
    }
    return *at;
  }

  fs::path folder_;
  files::MemoryMap map_;
  Pickle metadata_;
  detail::TorchBudget budget_;  // first for .metadata, then for all files
  std::unordered_map<std::string_view, const PickleValue*> paths_;
  std::map<std::string, std::vector<Stored>> stored_;
  std::map<std::string, std::shared_ptr<const files::MemoryMap>> files_;
};

}  // namespace

State load_distributed_checkpoint(const fs::path& folder) { return Reader(folder).read(); }

}  // namespace levin
