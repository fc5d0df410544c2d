#include "levin/trainer/predictions/spool.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <string>

#include "levin/base/check.h"

namespace levin::detail {
namespace {

constexpr int64_t kRoundBytes = int64_t{32} << 20;  ///< of all ranks' rows in a round

std::vector<int64_t> sizes_of(const RowKind& kind, int64_t rows) {
  std::vector<int64_t> sizes = {rows};
  sizes.insert(sizes.end(), kind.sizes.begin(), kind.sizes.end());
  return sizes;
}

}  // namespace

void Spool::append(const at::Tensor& rows) {
  const at::Tensor whole = rows.contiguous();
  file_.write({static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()});
  rows_ += rows.size(0);
}

at::Tensor Spool::next(const RowKind& kind, int64_t most) {
  if (!reader_) {
    file_.flush();
    reader_ = posix::open_file(staged_.path(), O_RDONLY);
  }
  const int64_t count = std::min(most, rows_ - rows_read_);
  at::Tensor rows = at::empty(sizes_of(kind, count), kind.dtype);
  const auto bytes = static_cast<int64_t>(rows.nbytes());
  const int64_t got =
      bytes == 0 ? 0
                 : posix::read_some(reader_, {static_cast<std::byte*>(rows.mutable_data_ptr()),
                                              static_cast<size_t>(bytes)});
  LEVIN_CHECK(got == bytes, "files.read", "could not read {} again: {}", staged_.path().string(),
              got < 0 ? posix::reason(errno) : "it is shorter than what was written");
  rows_read_ += count;
  return rows;
}

void in_order(Accelerator& accelerator, Spool& spool, const RowKind& kind,
              const std::function<void(const at::Tensor& rows)>& take) {
  const int64_t ranks = accelerator.num_processes();
  const int64_t most =
      std::max<int64_t>(1, kRoundBytes / ranks / std::max<int64_t>(1, kind.bytes()));
  // Each rank gives its next `most` rows in a round, so that the rows of a round are neighbours.
  for (int64_t first = 0; accelerator.any(first < spool.rows()); first += most) {
    State own;
    accelerator.all_or_throw([&] { own.set("rows", spool.next(kind, most)); });
    const std::vector<State> all = accelerator.gather_object(own);
    accelerator.all_or_throw([&] {
      if (!accelerator.is_main_process()) return;
      std::vector<at::Tensor> rows, places;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        rows.push_back(all[static_cast<size_t>(rank)].tensor("rows"));
        places.push_back(at::arange(rows.back().size(0), at::kLong) * ranks + rank);
      }
      take(at::cat(rows).index_select(0, at::argsort(at::cat(places))));
    });
  }
}

}  // namespace levin::detail
