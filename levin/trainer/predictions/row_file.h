#pragma once
// RowFile: a file that rows are appended to while they are made, whose header is written when their
// number is known. Not for users: prediction_writer and `predict` of levin::cli write these.
//
//   RowFile file("out/predictions.npy", RowFormat::kNpy, {at::kFloat, {3}});
//   file.append(rows);     // [n, 3]
//   file.commit();         // the file appears, complete and on the disk

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"

namespace levin::detail {

enum class RowFormat { kNpy, kCsv, kSafetensors };

/// The name of the one tensor of a safetensors file of predictions.
inline constexpr const char* kPredictions = "predictions";

/// The dtype and the sizes that all rows of a file have.
struct RowKind {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes = {};  ///< of a row

  int64_t elements() const;
  int64_t bytes() const;
  std::string text() const;  ///< "Float [3]"
  bool operator==(const RowKind&) const = default;
};

/// Throws Error "trainer.prediction_writer" for a dtype that the format lacks.
void check_kind(RowFormat format, const RowKind& kind);

class RowFile {
 public:
  /// Writes beside the path until commit(). Throws what check_kind throws, and Error "files.write".
  RowFile(const std::filesystem::path& path, RowFormat format, RowKind kind);

  /// Takes [n, sizes...] on the CPU, of the dtype. Throws Error "files.write".
  void append(const at::Tensor& rows);
  void commit();

 private:
  std::string header() const;
  void append_text(const at::Tensor& rows);

  files::StagedFile staged_;
  RowFormat format_;
  RowKind kind_;
  files::FileWriter file_;
  int64_t rows_ = 0;
};

}  // namespace levin::detail
