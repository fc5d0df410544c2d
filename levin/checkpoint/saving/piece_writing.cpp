#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <span>

#include "levin/checkpoint/saving/piece_writing_impl.h"
#include "levin/files/checksum.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/files/shared_file.h"

namespace levin::detail {
namespace {

at::Tensor own_elements(const OwnPiece& piece) {
  const auto width = static_cast<int64_t>(piece.elements.element_size());
  return piece.elements.narrow(0, piece.first_element, piece.size() / width);
}

/// The bytes of a piece whose elements are in a scratch file: read here, and written from here to the checkpoint.
/// Errors of that disk are errors, and none of it stays in memory.
at::Tensor read_scratch(const OwnPiece& piece, at::Tensor& buffer) {
  if (!buffer.defined() || buffer.numel() < piece.size()) {
    buffer = at::empty({piece.size()}, at::TensorOptions(at::kByte));
  }
  const at::Tensor bytes = buffer.narrow(0, 0, piece.size());
  const auto place = files::scratch_place(own_elements(piece).const_data_ptr());
  place->file->read(place->begin, {static_cast<std::byte*>(bytes.mutable_data_ptr()),
                                   static_cast<size_t>(piece.size())});
  return bytes;
}

/// On the CPU; undefined for a piece of a head. The buffer is for what comes from a disk.
at::Tensor elements_in(const OwnPiece& piece, at::Tensor& buffer) {
  if (!piece.elements.defined()) return {};
  return is_in_scratch(piece) ? read_scratch(piece, buffer) : own_elements(piece).cpu();
}

std::span<const std::byte> head_in(const SavePlan& plan, const OwnPiece& piece) {
  const std::span<const char> head(plan.files[piece.file].head);
  return std::as_bytes(
      head.subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.size())));
}

/// Aligned for every type.
int64_t room_of(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

bool is_in_scratch(const OwnPiece& piece) {
  const bool has_memory = piece.elements.defined() && piece.elements.is_cpu() && piece.size() > 0;
  return has_memory && files::scratch_place(own_elements(piece).const_data_ptr()).has_value();
}

std::vector<WrittenPiece> write_pieces(const SavePlan& plan,
                                       const std::vector<std::filesystem::path>& places,
                                       const std::vector<OwnPiece>& pieces) {
  const at::NoGradGuard no_grad;
  std::vector<WrittenPiece> written;
  std::map<size_t, files::SharedFile> opened;
  at::Tensor buffer;
  for (const OwnPiece& piece : pieces) {
    const at::Tensor on_host = elements_in(piece, buffer);
    const auto bytes = on_host.defined() ? bytes_of(on_host) : head_in(plan, piece);
    files::SharedFile& file = opened.try_emplace(piece.file, places[piece.file]).first->second;
    file.write_at(piece.begin, bytes);
    written.push_back(
        {static_cast<int64_t>(piece.file), piece.begin, piece.end, files::xxh3(bytes)});
  }
  // At last, when the disk has had its time with all of them.
  for (auto& [number, file] : opened) file.sync();
  return written;
}

void copy_into(SaveBuffer& buffer, std::vector<OwnPiece>& pieces) {
  const at::NoGradGuard no_grad;
  int64_t bytes = 0;
  bool from_gpu = false;
  for (const OwnPiece& piece : pieces) {
    if (!piece.elements.defined()) continue;
    bytes += room_of(piece.size());
    from_gpu = from_gpu || piece.elements.is_cuda();
  }
  if (!buffer.bytes.defined() || buffer.bytes.numel() < bytes) {
    buffer.bytes.reset();  // before there is another
    buffer.bytes = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(from_gpu));
  }
  int64_t offset = 0;
  for (OwnPiece& piece : pieces) {
    if (!piece.elements.defined()) continue;
    const at::Tensor copy = buffer.bytes.narrow(0, offset, piece.size());
    copy.view(piece.elements.scalar_type()).copy_(own_elements(piece));
    piece.elements = copy;
    piece.first_element = 0;
    offset += room_of(piece.size());
  }
}

}  // namespace levin::detail
