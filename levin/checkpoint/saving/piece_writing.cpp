#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <map>
#include <span>

#include "levin/checkpoint/saving/piece_writing_impl.h"
#include "levin/files/checksum.h"
#include "levin/files/shared_file.h"

namespace levin::detail {
namespace {

at::Tensor own_elements(const OwnPiece& piece) {
  const auto width = static_cast<int64_t>(piece.elements.element_size());
  return piece.elements.narrow(0, piece.first_element, piece.size() / width);
}

/// On the CPU; undefined for a piece of a head.
at::Tensor elements_in(const OwnPiece& piece) {
  return piece.elements.defined() ? own_elements(piece).cpu() : at::Tensor();
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

std::vector<WrittenPiece> write_pieces(const SavePlan& plan,
                                       const std::vector<std::filesystem::path>& places,
                                       const std::vector<OwnPiece>& pieces) {
  const at::NoGradGuard no_grad;
  std::vector<WrittenPiece> written;
  std::map<size_t, files::SharedFile> opened;
  for (const OwnPiece& piece : pieces) {
    const at::Tensor on_host = elements_in(piece);
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
