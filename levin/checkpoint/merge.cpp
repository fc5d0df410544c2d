#include "levin/checkpoint/merge.h"

#include <algorithm>
#include <string>

#include "levin/base/check.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/mapped_pieces_impl.h"
#include "levin/files/atomic.h"
#include "levin/files/shared_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

struct PartFolder {
  fs::path path;
  detail::Manifest manifest;
};

/// Opens the parts in the order of their numbers; data that several have is taken from the first.
std::vector<PartFolder> opened(const std::vector<fs::path>& paths) {
  std::vector<PartFolder> parts;
  for (const fs::path& path : paths) parts.push_back({path, detail::read_manifest(path)});
  LEVIN_CHECK(!parts.empty(), "checkpoint.part", "got no folder to merge, wanted all parts");
  for (const PartFolder& one : parts) {
    LEVIN_CHECK(one.manifest.part.has_value(), "checkpoint.part",
                "'{}' is a full checkpoint, not a part of one; load it without merging",
                one.path.string());
    LEVIN_CHECK(one.manifest.part->save == parts.front().manifest.part->save, "checkpoint.part",
                "'{}' and '{}' are parts of different saves; give the parts of one save",
                parts.front().path.string(), one.path.string());
  }
  std::ranges::sort(parts, {}, [](const PartFolder& one) { return one.manifest.part->index; });
  return parts;
}

std::vector<int64_t> ends_of(const detail::ListedFile& file) {
  std::vector<int64_t> ends;
  for (const detail::Piece& piece : file.pieces) ends.push_back(piece.end);
  return ends;
}

/// Copies a file's pieces, each from the first part that has it; gives it as the whole lists it.
detail::ListedFile merge_file(const std::vector<PartFolder>& parts, const std::string& name,
                              const fs::path& to) {
  detail::ListedFile whole;
  std::vector<detail::ListedFile> listed;
  std::vector<detail::MappedPieces> files;
  for (const PartFolder& part : parts) {
    const auto found = part.manifest.files.find(name);
    const bool fits = found != part.manifest.files.end() &&
                      (listed.empty() || ends_of(found->second) == ends_of(listed.front()));
    LEVIN_CHECK(fits, "checkpoint.part",
                "'{}' lists {} differently than '{}'; give the parts of one save",
                part.path.string(), name, parts.front().path.string());
    listed.push_back(found->second);
    files.emplace_back(part.path / name, found->second, part.manifest.part);
  }
  whole.size = listed.front().size;
  files::create_file(to, whole.size);
  files::SharedFile file(to);
  int64_t begin = 0;
  for (size_t i = 0; i < listed.front().pieces.size(); ++i) {
    const auto has_it = [&](const detail::ListedFile& one) { return one.pieces[i].is_here; };
    const auto place = std::ranges::find_if(listed, has_it);
    const int64_t end = listed.front().pieces[i].end;
    LEVIN_CHECK(
        place != listed.end(), "checkpoint.part",
        "none of the {} folders has the bytes {} to {} of {}; give the folders of all {} hosts",
        parts.size(), begin, end, name, parts.front().manifest.part->count);
    const auto number = static_cast<size_t>(place - listed.begin());
    file.write_at(begin, files[number].bytes(begin, end));
    whole.pieces.push_back(listed[number].pieces[i]);
    begin = end;
  }
  file.sync();
  return whole;
}

}  // namespace

void merge_checkpoints(const std::vector<fs::path>& paths, const fs::path& folder,
                       const SaveCheckpointOptions& options) {
  const std::vector<PartFolder> parts = opened(paths);
  files::StagedDirectory staged(folder, options.replace ? is_checkpoint : files::MayReplace());
  detail::Manifest whole;
  whole.weights = parts.front().manifest.weights;
  for (const auto& [name, listed] : parts.front().manifest.files) {
    whole.files[name] = merge_file(parts, name, staged.path() / name);
  }
  detail::write_manifest(staged.path(), whole);
  staged.commit();
}

}  // namespace levin
