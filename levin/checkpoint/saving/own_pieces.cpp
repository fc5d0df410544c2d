#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/checkpoint/saving/own_pieces_impl.h"

namespace levin::detail {
namespace {

/// Cuts the elements from byte `begin` to `end` of the file at fixed places of the full tensor.
void cut(std::vector<OwnPiece>& pieces, size_t file, int64_t tensor_begin, int64_t begin,
         int64_t end, const at::Tensor& elements) {
  const auto width = elements.defined() ? static_cast<int64_t>(elements.element_size()) : 1;
  for (int64_t from = begin; from < end;) {
    const int64_t next = tensor_begin + ((from - tensor_begin) / kPieceBytes + 1) * kPieceBytes;
    const int64_t to = std::min(next, end);
    pieces.push_back({file, from, to, elements, (from - begin) / width});
    from = to;
  }
}

/// Bytes of a row of the full tensor.
int64_t row_bytes(const TensorSlice& slice) {
  auto bytes = static_cast<int64_t>(slice.local.element_size());
  for (size_t dim = 1; dim < slice.sizes.size(); ++dim) bytes *= slice.sizes[dim];
  return bytes;
}

int64_t begin_of(const TensorPlace& place, const TensorSlice& slice) {
  return place.begin + (slice.offsets.empty() ? 0 : slice.offsets[0] * row_bytes(slice));
}

void cut_slice(std::vector<OwnPiece>& pieces, size_t file, const TensorPlace& place,
               const TensorSlice& slice, size_t tensor, const Replicas& replicas) {
  LEVIN_CHECK(has_type_of(slice.local, place) && slice.sizes == place.shape, "checkpoint.ranks",
              "'{}' is a shard of a {} of [{}] here, but of a {} of [{}] on rank 0; save the same "
              "tensors on all ranks",
              place.name, c10::toString(slice.local.scalar_type()), fmt::join(slice.sizes, ", "),
              place.dtype, fmt::join(place.shape, ", "));
  if (slice.local.numel() == 0) return;
  const auto local = slice.local.sizes();
  bool is_rows = local.size() == slice.sizes.size() && slice.offsets.size() == slice.sizes.size();
  for (size_t dim = 0; is_rows && dim < local.size(); ++dim) {
    const int64_t offset = slice.offsets[dim], size = slice.sizes[dim];
    is_rows =
        dim == 0 ? offset >= 0 && local[0] <= size - offset : offset == 0 && local[dim] == size;
  }
  LEVIN_CHECK(is_rows, "checkpoint.slice",
              "'{}' of [{}] has the shard [{}] at offset [{}] here, wanted consecutive full rows; "
              "redistribute it along dim 0 before saving",
              place.name, fmt::join(slice.sizes, ", "), fmt::join(local, ", "),
              fmt::join(slice.offsets, ", "));
  const int64_t begin = begin_of(place, slice);
  const auto bytes = static_cast<int64_t>(slice.local.nbytes());
  const size_t first = pieces.size();
  cut(pieces, file, place.begin, begin, begin + bytes, elements_of(slice.local));
  if (replicas.count == 1) return;
  const auto is_others = [&](const OwnPiece& piece) {
    const int64_t number = (piece.begin - place.begin) / kPieceBytes + static_cast<int64_t>(tensor);
    return number % replicas.count != replicas.number;
  };
  pieces.erase(
      std::remove_if(pieces.begin() + static_cast<int64_t>(first), pieces.end(), is_others),
      pieces.end());
}

/// Deals out tensors that all ranks hold: as many bytes to each rank, one run after another.
class Dealer {
 public:
  Dealer(int64_t bytes, int64_t rank, int64_t size)
      : bytes_(std::max<int64_t>(bytes, 1)), rank_(rank), size_(size) {}

  /// Returns whether the next piece is this rank's.
  bool takes(int64_t piece_bytes) {
    const int64_t middle = dealt_ + piece_bytes / 2;
    const int64_t owner = std::min(middle * size_ / bytes_, size_ - 1);
    dealt_ += piece_bytes;
    return owner == rank_;
  }

 private:
  int64_t bytes_, rank_, size_;
  int64_t dealt_ = 0;
};

const TensorSlice* slice_in(const State::Value* value) {
  return value == nullptr ? nullptr : std::get_if<TensorSlice>(value);
}

int64_t bytes_dealt(const SavePlan& plan, const Sources& own, const std::vector<bool>& held) {
  int64_t bytes = 0;
  size_t number = 0;
  for_each_tensor(plan, [&](size_t file, const TensorPlace& place) {
    const bool is_dealt = held[number++] && !slice_in(planned_value(own, plan.files[file], place));
    if (is_dealt) bytes += place.end - place.begin;
  });
  return bytes;
}

/// Takes the pieces of a full tensor that the dealer gives this rank; without a dealer, all.
void take_whole(std::vector<OwnPiece>& pieces, size_t file, const TensorPlace& place,
                const State::Value* value, Dealer* dealer) {
  const auto* tensor = value == nullptr ? nullptr : std::get_if<at::Tensor>(value);
  LEVIN_CHECK(tensor != nullptr && has_type_of(*tensor, place) &&
                  std::ranges::equal(tensor->sizes(), place.shape),
              "checkpoint.ranks",
              "this rank has no '{}' of {} [{}]; save the same tensors on all ranks", place.name,
              place.dtype, fmt::join(place.shape, ", "));
  at::Tensor elements;  // made where a piece is this rank's
  for (int64_t from = place.begin; from < place.end;) {
    const int64_t to = std::min(from + kPieceBytes, place.end);
    if (dealer == nullptr || dealer->takes(to - from)) {
      if (!elements.defined()) elements = elements_of(*tensor);
      const auto width = static_cast<int64_t>(elements.element_size());
      pieces.push_back({file, from, to, elements, (from - place.begin) / width});
    }
    from = to;
  }
}

}  // namespace

at::Tensor shards_of(const SavePlan& plan, const Sources& own) {
  std::vector<int64_t> borders;
  for_each_tensor(plan, [&](size_t file, const TensorPlace& place) {
    const TensorSlice* slice = slice_in(planned_value(own, plan.files[file], place));
    const int64_t begin = slice == nullptr ? -1 : begin_of(place, *slice);
    borders.push_back(begin);
    borders.push_back(slice == nullptr ? -1 : begin + static_cast<int64_t>(slice->local.nbytes()));
  });
  return at::tensor(borders, at::TensorOptions(at::kLong).device(at::kCPU)).view({-1, 2});
}

std::vector<Replicas> replicas_in(const std::vector<at::Tensor>& shards, int64_t rank) {
  const auto own = static_cast<size_t>(rank);
  std::vector<Replicas> all;
  for (int64_t tensor = 0; tensor < shards[own].size(0); ++tensor) {
    const auto borders = [&](size_t of) {
      const int64_t* at = shards[of].const_data_ptr<int64_t>() + 2 * tensor;
      return std::pair(at[0], at[1]);
    };
    Replicas replicas{.count = 0};
    for (size_t other = 0; other < shards.size(); ++other) {
      if (borders(other) != borders(own)) continue;
      if (other < own) ++replicas.number;
      ++replicas.count;
    }
    all.push_back(replicas);
  }
  return all;
}

std::vector<OwnPiece> own_pieces(const SavePlan& plan, const Sources& own,
                                 const std::vector<bool>& held,
                                 const std::vector<Replicas>& replicas, int64_t rank,
                                 int64_t size) {
  const at::NoGradGuard no_grad;
  Dealer dealer(bytes_dealt(plan, own, held), rank, size);
  std::vector<OwnPiece> pieces;
  size_t number = 0;
  for (size_t i = 0; i < plan.files.size(); ++i) {
    const PlannedFile& file = plan.files[i];
    if (rank == 0) cut(pieces, i, 0, 0, std::ssize(file.head), {});
    for (const TensorPlace& place : file.tensors) {
      const size_t tensor = number++;
      const bool is_held = held[tensor];
      const State::Value* value = planned_value(own, file, place);
      if (const auto* slice = slice_in(value)) {
        LEVIN_CHECK(is_held, "checkpoint.ranks",
                    "'{}' is a shard here, but full or missing on another rank; save the same "
                    "tensors on all ranks",
                    place.name);
        cut_slice(pieces, i, place, *slice, tensor, replicas[tensor]);
      } else if (is_held || rank == 0) {
        take_whole(pieces, i, place, value, is_held ? &dealer : nullptr);
      }
    }
  }
  return pieces;
}

}  // namespace levin::detail
