#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/mapped_pieces_impl.h"
#include "levin/checkpoint/state_json.h"
#include "levin/checkpoint/tensor_file.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {

using detail::MappedPieces;
using files::TensorEntry;

namespace {

/// The folder at a path when this was made. It is held open, so that no other folder gets its inode
/// number meanwhile, as a later save's would after its removal.
class FolderOfNow {
 public:
  explicit FolderOfNow(const std::filesystem::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}
  ~FolderOfNow() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderOfNow(const FolderOfNow&) = delete;
  FolderOfNow& operator=(const FolderOfNow&) = delete;

  /// Returns true also if there was none and is none.
  bool still_stands() const {
    struct stat then{}, now{};
    const bool was_there = descriptor_ >= 0 && ::fstat(descriptor_, &then) == 0;
    const bool is_there = ::stat(path_.c_str(), &now) == 0;
    if (!was_there || !is_there) return was_there == is_there;
    return then.st_dev == now.st_dev && then.st_ino == now.st_ino;
  }

 private:
  const std::filesystem::path& path_;
  int descriptor_;
};

}  // namespace

struct CheckpointReader::Impl {
  std::filesystem::path folder;
  detail::Manifest manifest;
  std::map<std::string, MappedPieces> files = {};

  explicit Impl(std::filesystem::path path) : folder(std::move(path)) {
    // A save may replace this folder while its files are opened; once they are open, they stay the
    // same.
    constexpr int kMostTries = 100;
    for (int tries = 1;; ++tries) {
      const FolderOfNow opened(folder);
      try {
        open_files();
        if (opened.still_stands()) return;
      } catch (const Error&) {
        if (opened.still_stands() || tries == kMostTries) throw;
      }
    }
  }

  void open_files() {
    files.clear();
    manifest = detail::read_manifest(folder);
    for (const auto& [name, listed] : manifest.files) {
      files.emplace(name, MappedPieces(folder / name, listed, manifest.part));
    }
  }

  MappedPieces& file(const std::string& name) { return files.at(name); }

  const std::vector<std::string>& files_of(const std::string& model) const {
    const auto found = manifest.weights.find(model);
    std::string models;
    for (const auto& [name, names] : manifest.weights)
      models += (models.empty() ? "" : ", ") + name;
    LEVIN_CHECK(found != manifest.weights.end(), "checkpoint.weights",
                "'{}' holds no weights named '{}', wanted one of [{}]", folder.string(), model,
                models);
    return found->second;
  }

  std::pair<MappedPieces*, const TensorEntry*> find(const std::string& model,
                                                    const std::string& name) {
    for (const std::string& one : files_of(model)) {
      MappedPieces& pieces = file(one);
      if (const TensorEntry* entry = pieces.tensors().find(name)) return {&pieces, entry};
    }
    LEVIN_FAIL("checkpoint.weights", "the weights '{}' in '{}' hold no tensor '{}'", model,
               folder.string(), name);
  }

  static at::Tensor whole(MappedPieces& file, const TensorEntry& entry) {
    file.check_rows(entry, 0, entry.shape.empty() ? 1 : entry.shape[0]);
    return detail::tensor_of(entry, file.tensors(), file.path());
  }

  static at::Tensor part(MappedPieces& file, const TensorEntry& entry, RowRange rows) {
    const bool has_them = !entry.shape.empty() && rows.begin >= 0 && rows.begin <= rows.end &&
                          rows.end <= entry.shape[0];
    LEVIN_CHECK(has_them, "checkpoint.rows",
                "{}: got rows {} to {} for '{}', which has the sizes [{}]", file.path().string(),
                rows.begin, rows.end, printable(entry.name), fmt::join(entry.shape, ", "));
    file.check_rows(entry, rows.begin, rows.end);
    const size_t row =
        entry.shape[0] == 0 ? 0 : entry.data.size() / static_cast<size_t>(entry.shape[0]);
    TensorEntry own{entry.name, entry.dtype, entry.shape,
                    entry.data.subspan(static_cast<size_t>(rows.begin) * row,
                                       static_cast<size_t>(rows.end - rows.begin) * row)};
    own.shape[0] = rows.end - rows.begin;
    return detail::tensor_of(own, file.tensors(), file.path());
  }

  static void read(State& state, MappedPieces& file, const WantedRows& wanted) {
    for (const TensorEntry& entry : file.tensors().entries()) {
      const std::optional<RowRange> rows = wanted ? wanted(entry.name, entry.shape) : std::nullopt;
      if (!rows) {
        state.set(entry.name, whole(file, entry));
        continue;
      }
      TensorSlice slice{part(file, entry, *rows), entry.shape,
                        std::vector<int64_t>(entry.shape.size(), 0)};
      slice.offsets[0] = rows->begin;
      state.set(entry.name, std::move(slice));
    }
  }
};

std::optional<RowRange> rows_of(const at::Tensor& leaf) {
  const auto layout = shard::layout_of(leaf);
  if (layout == nullptr || layout->sizes().empty()) return std::nullopt;
  const shard::Slice slice = layout->slice(shard::mesh_of(leaf)->rank());
  return RowRange{slice.offsets[0], slice.offsets[0] + slice.sizes[0]};
}

CheckpointReader::CheckpointReader(const std::filesystem::path& folder)
    : impl_(std::make_shared<Impl>(folder)) {}

std::vector<std::string> CheckpointReader::models() const {
  std::vector<std::string> models;
  for (const auto& [model, files] : impl_->manifest.weights) models.push_back(model);
  return models;
}

std::vector<std::string> CheckpointReader::names(const std::string& model) {
  std::vector<std::string> names;
  for (const std::string& file : impl_->files_of(model)) {
    for (const TensorEntry& entry : impl_->file(file).tensors().entries()) {
      names.push_back(entry.name);
    }
  }
  std::ranges::sort(names);
  return names;
}

std::vector<int64_t> CheckpointReader::sizes(const std::string& model, const std::string& name) {
  return impl_->find(model, name).second->shape;
}

at::Tensor CheckpointReader::tensor(const std::string& model, const std::string& name) {
  const auto [file, entry] = impl_->find(model, name);
  return Impl::whole(*file, *entry);
}

at::Tensor CheckpointReader::rows(const std::string& model, const std::string& name, int64_t begin,
                                  int64_t end) {
  const auto [file, entry] = impl_->find(model, name);
  return Impl::part(*file, *entry, {begin, end});
}

State CheckpointReader::weights(const std::string& model, const WantedRows& wanted) {
  State state;
  for (const std::string& file : impl_->files_of(model)) {
    Impl::read(state, impl_->file(file), wanted);
  }
  return state;
}

State CheckpointReader::training(const WantedRows& wanted) {
  MappedPieces& json = impl_->file(detail::kTrainingJson);
  StateJson parts{std::string(json.text()), {}};
  Impl::read(parts.tensors, impl_->file(detail::kTrainingTensors), wanted);
  return state_from_json(parts, json.path().string());
}

State CheckpointReader::training_scalars() {
  MappedPieces& json = impl_->file(detail::kTrainingJson);
  return scalars_from_json(std::string(json.text()), json.path().string());
}

void CheckpointReader::check_all() {
  for (const auto& [name, listed] : impl_->manifest.files) impl_->file(name).check_all();
}

int64_t CheckpointReader::bytes_read() const {
  int64_t bytes = 0;
  for (const auto& [name, file] : impl_->files) bytes += file.bytes_checked();
  return bytes;
}

}  // namespace levin
