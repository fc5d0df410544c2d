#include "levin/comm/collectives/pieces.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "levin/base/check.h"

namespace levin::comm {

Piece::Piece(const at::Tensor& tensor) : tensor_(tensor) {
  LEVIN_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided, "comm.tensor",
              "got a {} tensor on {}, wanted a dense one on the CPU; use nccl for GPUs",
              c10::str(tensor.layout()), tensor.device().str());
  contiguous_ = tensor.is_non_overlapping_and_dense() && tensor.is_contiguous()
                    ? tensor
                    : tensor.contiguous();
}

Piece::operator Elements() const {
  return {static_cast<std::byte*>(contiguous_.data_ptr()), contiguous_.scalar_type(),
          contiguous_.numel()};
}

void Piece::give_back() const {
  const at::NoGradGuard no_grad;
  if (!contiguous_.is_same(tensor_)) tensor_.copy_(contiguous_);
}

std::vector<Piece> pieces_of(const std::vector<at::Tensor>& tensors) {
  return {tensors.begin(), tensors.end()};
}

std::vector<Elements> all_of(const std::vector<Piece>& pieces) {
  return {pieces.begin(), pieces.end()};
}

void give_back(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) piece.give_back();
}

Whole::Whole(std::string_view collective, const std::vector<at::Tensor>& tensors)
    : pieces_(pieces_of(tensors)) {
  LEVIN_CHECK(!tensors.empty(), "comm.tensor", "{}: got no parts, wanted one part per rank",
              collective);
  for (const at::Tensor& tensor : tensors) {
    const auto first = tensors.front().scalar_type();
    LEVIN_CHECK(tensor.scalar_type() == first, "comm.tensor",
                "{}: got parts of dtype {} and {}, wanted one dtype", collective,
                c10::toString(first), c10::toString(tensor.scalar_type()));
    counts_.push_back(tensor.numel());
  }
  const std::vector<Elements> parts = all_of(pieces_);
  whole_ = {nullptr, parts.front().type, sum_of(counts_)};
  const auto some = std::ranges::find_if(parts, [](const auto& part) { return part.count > 0; });
  if (some != parts.end()) whole_.data = some->data;  // one without elements lies nowhere
  if (lies_in_one_piece()) return;
  copy_ = at::empty({whole_.bytes()}, at::kByte);
  whole_.data = static_cast<std::byte*>(copy_.data_ptr());
  const std::vector<Elements> places = cut(whole_, counts_);
  for (size_t i = 0; i < parts.size(); ++i) {
    copy_bytes(places[i].data, parts[i].data, parts[i].bytes());
  }
}

bool Whole::lies_in_one_piece() const {
  const std::vector<Elements> parts = all_of(pieces_), places = cut(whole_, counts_);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].count > 0 && parts[i].data != places[i].data) return false;
  }
  return true;
}

void Whole::give_back() const {
  const std::vector<Elements> parts = all_of(pieces_), places = cut(whole_, counts_);
  for (size_t i = 0; copy_.defined() && i < parts.size(); ++i) {
    copy_bytes(parts[i].data, places[i].data, parts[i].bytes());
  }
  comm::give_back(pieces_);
}

}  // namespace levin::comm
