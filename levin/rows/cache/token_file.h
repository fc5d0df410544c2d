#pragma once
// TokenFile: the rows of a file as tokens, mapped; a safetensors file. Not for users.
//
//   tokens           I32 [N]            ids, uncounted (~id) where they do not count
//   second           I32 [N]            types of pairs, or numbers of tags; where there are any
//   offsets          I64 [S + 1]        of each sequence in tokens
//   labels           I64 or F32 [R, n]  of each sample of `parts` sequences, where there are any
//   row_offsets      I64 [P + 1]        of packed rows, in row_sequences
//   row_sequences    I64 [S]            sequences in the order in which they stand in packed rows
//
// and in its metadata levin.rows (the format's version), fingerprint (what it was made of), about (JSON) and
// xxh3 (of all of these).

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/files/safetensors.h"
#include "levin/rows/labels.h"
#include "levin/rows/rows.h"

namespace levin::text::row {

/// The metadata of a token file.
struct About {
  int64_t parts = 1;       ///< sequences of a sample
  bool is_packed = false;  ///< samples are rows of several sequences, else of `parts`
  LabelSet labels;
  RowsReport report;
};

LEVIN_API std::string about_text(const About& about);
std::optional<About> read_about(const std::string& text);

/// Returns the checksum of all contents of a file.
LEVIN_API std::string checksum_of(std::span<const files::TensorEntry> entries,
                                  const files::TensorMetadata& metadata);

inline constexpr const char* kRowsVersion = "2";

class LEVIN_API TokenFile {
 public:
  /// Why a file cannot be used: it is damaged, or made of something else.
  struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  /// Checks every byte, whoever wrote them. Throws Refusal.
  TokenFile(const std::filesystem::path& path, const std::string& fingerprint);

  const About& about() const { return about_; }
  int64_t num_samples() const;
  int64_t num_sequences() const { return std::ssize(offsets_) - 1; }
  /// The sequences of a sample: of a packed row in the order in which they stand.
  std::vector<int64_t> sequences_of(int64_t sample) const;

  std::span<const int32_t> tokens(int64_t sequence) const { return part(tokens_, sequence); }
  bool has_second() const { return !second_.empty(); }
  std::span<const int32_t> second(int64_t sequence) const { return part(second_, sequence); }
  int64_t length(int64_t sequence) const;
  /// Tokens of a packed row, or of the longest sequence of a sample.
  int64_t sample_length(int64_t sample) const;

  /// Returns the class of a sample that is not packed, or of a sequence of a packed row.
  int64_t class_of(int64_t index) const { return classes_[static_cast<size_t>(index)]; }
  std::span<const float> numbers_of(int64_t index) const;
  bool has_classes() const { return !classes_.empty(); }
  bool has_numbers() const { return !numbers_.empty(); }

 private:
  template <class T>
  std::span<const T> list(const char* name, const char* dtype) const;
  std::span<const int32_t> part(std::span<const int32_t> all, int64_t sequence) const;
  void check_metadata(const std::string& fingerprint);
  void check_lists() const;
  void check_packed() const;

  files::SafetensorsFile file_;
  About about_;
  std::span<const int32_t> tokens_;
  std::span<const int32_t> second_;
  std::span<const int64_t> offsets_;
  std::span<const int64_t> classes_;
  std::span<const float> numbers_;
  std::span<const int64_t> row_offsets_;
  std::span<const int64_t> row_sequences_;
};

}  // namespace levin::text::row
