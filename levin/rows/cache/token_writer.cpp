#include "levin/rows/cache/token_writer.h"

#include <algorithm>

#include "levin/base/check.h"

namespace levin::text::row {
namespace {

namespace fs = std::filesystem;

fs::path beside(const fs::path& path, const char* ending) {
  fs::path other = path;
  other += ending;
  return other;
}

template <class T>
files::TensorEntry entry_of(const char* name, const char* dtype, std::span<const T> values,
                            std::vector<int64_t> shape = {}) {
  if (shape.empty()) shape = {std::ssize(values)};
  return {name, dtype, std::move(shape), std::as_bytes(values)};
}

}  // namespace

std::span<const std::byte> TokenWriter::Spill::bytes() {
  file_.flush();
  if (!map_) map_.emplace(staged_.path());
  return map_->bytes();
}

TokenWriter::TokenWriter(const fs::path& path, const Plan& plan, int64_t parts,
                         std::optional<LabelSet> known, bool has_kinds)
    : path_(path),
      plan_(plan),
      about_{.parts = parts, .is_packed = plan.options.packing, .labels = {}, .report = {}},
      labels_(std::move(known), has_kinds, plan.options.problem_type),
      tokens_(beside(path, ".tokens")),
      second_(beside(path, ".second")) {}

void TokenWriter::add(const Made& made, std::string_view place) {
  RowsReport& report = about_.report;
  ++report.rows;
  report.truncated += made.truncated;
  report.dropped += made.sequences.empty();
  if (made.sequences.empty()) return;
  labels_.add(made.label, place);
  const bool by_row = plan_.task == "classify" || plan_.task == "embed";
  int64_t counts = by_row ? 1 : 0;
  for (const Sequence& sequence : made.sequences) {
    tokens_.add(sequence.tokens);
    report.tokens += std::ssize(sequence.tokens);
    offsets_.push_back(report.tokens);
    if (!sequence.second.empty()) add_second(sequence, made.tags, place);
    if (!by_row) counts += counted(sequence);
  }
  report.counted += counts;
  report.idle += counts == 0;
}

int64_t TokenWriter::counted(const Sequence& sequence) const {
  if (plan_.task == "tag") return counted_tags_;
  // Nobody predicts the first token of a text.
  const int64_t first = plan_.is_causal() ? 1 : 0;
  return std::count_if(sequence.tokens.begin() + std::min(first, std::ssize(sequence.tokens)),
                       sequence.tokens.end(), [](int32_t token) { return token >= 0; });
}

/// Adds types unchanged, or for words the numbers of their tags so far.
void TokenWriter::add_second(const Sequence& sequence, const std::vector<Label>& tags,
                             std::string_view place) {
  has_second_ = true;
  if (plan_.task != "tag") {
    second_.add(sequence.second);
    return;
  }
  std::vector<int32_t> numbers(sequence.second.size(), kIgnored);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int32_t word = sequence.second[i];
    if (word >= 0) numbers[i] = labels_.add_tag(tags[static_cast<size_t>(word)], place);
  }
  counted_tags_ = std::ranges::count_if(numbers, [](int32_t number) { return number != kIgnored; });
  second_.add(numbers);
}

void TokenWriter::finish_report() {
  about_.labels = labels_.set();
  RowsReport& report = about_.report;
  std::vector<int64_t> lengths(offsets_.size() - 1);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = offsets_[i + 1] - offsets_[i];
  if (plan_.options.packing) {
    packed_ = pack(lengths, *plan_.max_length);
    report.samples = std::ssize(packed_.offsets) - 1;
    for (int64_t row = 0; row < report.samples; ++row) {
      int64_t sum = 0;
      for (int64_t i = packed_.offsets[row]; i < packed_.offsets[row + 1]; ++i) {
        sum += lengths[static_cast<size_t>(packed_.documents[static_cast<size_t>(i)])];
      }
      report.longest = std::max(report.longest, sum);
    }
  } else {
    report.samples = std::ssize(lengths) / about_.parts;
    report.longest = *std::ranges::max_element(lengths);
  }
}

std::vector<files::TensorEntry> TokenWriter::entries() {
  std::vector<files::TensorEntry> entries;
  const int64_t tokens = offsets_.back();
  entries.push_back({"tokens", "I32", {tokens}, tokens_.bytes()});
  entries.push_back(entry_of("offsets", "I64", std::span<const int64_t>(offsets_)));
  if (has_second_ && plan_.task == "tag") {
    const std::span<const std::byte> bytes = second_.bytes();
    tags_.resize(static_cast<size_t>(tokens));
    std::ranges::copy(bytes, std::as_writable_bytes(std::span(tags_)).begin());
    for (int32_t& tag : tags_) tag = labels_.number(tag);
    entries.push_back(entry_of("second", "I32", std::span<const int32_t>(tags_)));
  } else if (has_second_) {
    entries.push_back({"second", "I32", {tokens}, second_.bytes()});
  }
  const std::vector<double>& labels = labels_.values();
  if (labels_.set().kind == LabelKind::kClasses && !labels.empty()) {
    classes_.assign(labels.begin(), labels.end());
    entries.push_back(entry_of("labels", "I64", std::span<const int64_t>(classes_)));
  } else if (!labels.empty()) {
    numbers_.assign(labels.begin(), labels.end());
    const int64_t width = about_.labels.count;
    entries.push_back(entry_of("labels", "F32", std::span<const float>(numbers_),
                               {std::ssize(numbers_) / width, width}));
  }
  if (plan_.options.packing) {
    entries.push_back(entry_of("row_offsets", "I64", std::span<const int64_t>(packed_.offsets)));
    entries.push_back(
        entry_of("row_sequences", "I64", std::span<const int64_t>(packed_.documents)));
  }
  return entries;
}

void TokenWriter::commit(const std::string& fingerprint, const fs::path& source) {
  LEVIN_CHECK(offsets_.size() > 1 && about_.report.counted > 0, "text.rows.empty",
              "{}: none of {} rows has a {} for the loss; raise max_length, or check which tokens "
              "the loss counts",
              source.string(), about_.report.rows, plan_.task == "tag" ? "tag" : "token");
  labels_.finish();
  LEVIN_CHECK(!plan_.options.packing || labels_.set().kind == LabelKind::kClasses ||
                  labels_.set().kind == LabelKind::kNone,
              "text.rows.options",
              "rows with numbers as labels cannot be packed; leave packing out");
  finish_report();
  const std::vector<files::TensorEntry> all = entries();
  files::TensorMetadata metadata = {
      {"levin.rows", kRowsVersion}, {"fingerprint", fingerprint}, {"about", about_text(about_)}};
  metadata["xxh3"] = checksum_of(all, metadata);
  files::StagedFile staged(path_);
  files::write_safetensors(staged.path(), all, metadata);
  staged.commit();
}

}  // namespace levin::text::row
