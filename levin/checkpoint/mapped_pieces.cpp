#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "levin/base/check.h"
#include "levin/checkpoint/mapped_pieces_impl.h"
#include "levin/files/checksum.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

files::MemoryMap mapped(const fs::path& path, const ListedFile& listed) {
  std::error_code error;
  const fs::file_status there = fs::symlink_status(path, error);
  if (!fs::exists(there)) fail_corrupt(path, "the file is missing");
  if (!fs::is_regular_file(there)) fail_corrupt(path, "it is a link or not a regular file");
  files::MemoryMap map(path);
  if (std::ssize(map.bytes()) != listed.size) {
    fail_corrupt(path, fmt::format("it has {} bytes, wanted {}", map.bytes().size(), listed.size));
  }
  return map;
}

}  // namespace

MappedPieces::MappedPieces(fs::path path, ListedFile listed, const std::optional<Part>& part)
    : path_(std::move(path)),
      listed_(std::move(listed)),
      part_(part),
      map_(mapped(path_, listed_)),
      bytes_(map_->bytes()),
      checked_(listed_.pieces.size(), false) {}

void MappedPieces::check(int64_t begin, int64_t end) {
  if (begin >= end) return;
  const auto first = std::ranges::upper_bound(listed_.pieces, begin, {}, &Piece::end);
  for (auto piece = first; piece != listed_.pieces.end(); ++piece) {
    const auto number = static_cast<size_t>(piece - listed_.pieces.begin());
    const int64_t from = number == 0 ? 0 : listed_.pieces[number - 1].end;
    if (from >= end) return;
    if (checked_[number]) continue;
    LEVIN_CHECK(piece->is_here, "checkpoint.part",
                "{}: the bytes {} to {} are not in this folder, which is part {} of {} of a "
                "checkpoint; load it on the hosts that saved it, or merge the parts",
                path_.string(), from, piece->end, part_ ? part_->index + 1 : 1,
                part_ ? part_->count : 1);
    const auto bytes =
        bytes_.subspan(static_cast<size_t>(from), static_cast<size_t>(piece->end - from));
    if (files::xxh3(bytes) != piece->xxh3) {
      fail_corrupt(
          path_,
          fmt::format("its bytes differ from the saved ones (checksum of the bytes {} to {})", from,
                      piece->end));
    }
    checked_[number] = true;
    bytes_checked_ += piece->end - from;
  }
}

std::span<const std::byte> MappedPieces::bytes(int64_t begin, int64_t end) {
  check(begin, end);
  return bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::string_view MappedPieces::text() {
  check_all();
  return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
}

const files::SafetensorsFile& MappedPieces::tensors() {
  if (tensors_) return *tensors_;
  // The length of the header first, and then the header: what is not checked is not believed.
  uint64_t length = 0;
  const auto size = static_cast<uint64_t>(listed_.size);
  if (size >= sizeof length) {
    check(0, sizeof length);
    std::memcpy(&length, bytes_.data(), sizeof length);
    check(0, static_cast<int64_t>(std::min(size, sizeof length + std::min(length, size))));
  }
  tensors_.emplace(std::move(*map_), path_.string());
  map_.reset();
  return *tensors_;
}

void MappedPieces::check_rows(const files::TensorEntry& tensor, int64_t begin, int64_t end) {
  if (tensor.data.empty()) return;
  const int64_t offset = tensor.data.data() - bytes_.data();
  const int64_t row =
      tensor.shape.empty() ? std::ssize(tensor.data) : std::ssize(tensor.data) / tensor.shape[0];
  check(offset + begin * row, offset + end * row);
}

}  // namespace levin::detail
