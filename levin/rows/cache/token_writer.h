#pragma once
// TokenWriter: writes a TokenFile row by row; what may be large goes to the disk as it comes. Not for users.
//
//   TokenWriter writer(path, plan, parts, known, has_kinds);
//   for (...) writer.add(made, record.where());
//   writer.commit(fingerprint);                        // the file is there, whole

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/files/atomic.h"
#include "levin/files/file_writer.h"
#include "levin/rows/cache/packing.h"
#include "levin/rows/cache/token_file.h"
#include "levin/rows/plan.h"

namespace levin::text::row {

class TokenWriter {
 public:
  /// parts: sequences of a sample. known, has_kinds: see Labels.
  TokenWriter(const std::filesystem::path& path, const Plan& plan, int64_t parts,
              std::optional<LabelSet> known, bool has_kinds);

  void add(const Made& made, std::string_view place);
  /// Throws Error "text.rows.empty" where nothing was added that counts, naming `source`.
  void commit(const std::string& fingerprint, const std::filesystem::path& source);

 private:
  /// A list of numbers under way to the disk, gone when this process ends.
  class Spill {
   public:
    explicit Spill(const std::filesystem::path& beside) : staged_(beside), file_(staged_.path()) {}
    void add(std::span<const int32_t> numbers) { file_.write(std::as_bytes(numbers)); }
    /// Returns the added values, mapped; valid while this lives.
    std::span<const std::byte> bytes();

   private:
    files::StagedFile staged_;
    files::FileWriter file_;
    std::optional<files::MemoryMap> map_;
  };

  /// Returns how many tokens of the sequence that was added last count in the loss.
  int64_t counted(const Sequence& sequence) const;
  void add_second(const Sequence& sequence, const std::vector<Label>& tags, std::string_view place);
  std::vector<files::TensorEntry> entries();
  void finish_report();

  std::filesystem::path path_;
  const Plan& plan_;
  About about_;
  Labels labels_;
  Spill tokens_;
  Spill second_;
  bool has_second_ = false;
  std::vector<int64_t> offsets_ = {0};
  PackedRows packed_;
  std::vector<int64_t> classes_;  ///< labels that are classes
  std::vector<float> numbers_;    ///< labels that are numbers
  std::vector<int32_t> tags_;
  int64_t counted_tags_ = 0;
};

}  // namespace levin::text::row
