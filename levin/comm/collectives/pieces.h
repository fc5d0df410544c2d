#pragma once
// Piece, Whole: the elements of tensors as collectives want them: in one piece.

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "levin/comm/collectives/collectives.h"

namespace levin::comm {

/// A tensor's elements: its own memory or a copy, which give_back() copies home. Throws
/// "comm.tensor" for one that is not dense or not on the CPU.
class Piece {
 public:
  explicit Piece(const at::Tensor& tensor);
  operator Elements() const;  // NOLINT(google-explicit-constructor): reads as what it is
  void give_back() const;

 private:
  at::Tensor tensor_;
  at::Tensor contiguous_;
};

std::vector<Piece> pieces_of(const std::vector<at::Tensor>& tensors);
std::vector<Elements> all_of(const std::vector<Piece>& pieces);
void give_back(const std::vector<Piece>& pieces);

/// The elements of several tensors, one behind the other: their own memory where they lie so, else
/// a copy, which give_back() copies home.
class Whole {
 public:
  Whole(std::string_view collective, const std::vector<at::Tensor>& tensors);
  operator Elements() const { return whole_; }  // NOLINT(google-explicit-constructor)
  Counts counts() const { return counts_; }
  void give_back() const;

 private:
  bool lies_in_one_piece() const;

  std::vector<Piece> pieces_;
  std::vector<int64_t> counts_;
  Elements whole_;
  at::Tensor copy_;
};

}  // namespace levin::comm
