#pragma once
// Spool: the rows that one of several ranks has predicted, in a temporary file beside the output,
// until all ranks have ended and rank 0 puts them in order. Ranks may have different numbers of
// batches, so that they cannot exchange rows in between. Not for users.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "levin/base/posix.h"
#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"
#include "levin/trainer/predictions/row_file.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

class Spool {
 public:
  /// name: as no other rank's in that folder.
  explicit Spool(const std::filesystem::path& name) : staged_(name), file_(staged_.path()) {}

  void append(const at::Tensor& rows);
  /// Returns the next rows, at most so many; fewer only at the end. Nothing is appended then.
  at::Tensor next(const RowKind& kind, int64_t most);
  int64_t rows() const { return rows_; }

 private:
  files::StagedFile staged_;
  files::FileWriter file_;
  posix::Descriptor reader_;
  int64_t rows_ = 0, rows_read_ = 0;
};

/// Called on all ranks: gives rank 0 all rows of the spools, some at a time, in the order of the
/// samples. Sample k of rank r is number k * ranks + r of all; a rank that has no more is skipped.
void in_order(Accelerator& accelerator, Spool& spool, const RowKind& kind,
              const std::function<void(const at::Tensor& rows)>& take);

}  // namespace levin::detail
