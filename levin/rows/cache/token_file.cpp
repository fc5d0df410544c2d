#include "levin/rows/cache/token_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/error.h"
#include "levin/base/json.h"
#include "levin/files/checksum.h"

namespace levin::text::row {
namespace {

using nlohmann::json;

/// Begins at 0, ends at `end`, never falls.
bool are_offsets(std::span<const int64_t> offsets, int64_t end) {
  return !offsets.empty() && offsets.front() == 0 && offsets.back() == end &&
         std::ranges::is_sorted(offsets);
}

void want(bool holds, const char* why) {
  if (!holds) throw TokenFile::Refusal(why);
}

/// Visits the numbers that describe the file, by name.
template <class Visit>
void visit_report(auto& report, const Visit& visit) {
  visit("rows", report.rows);
  visit("samples", report.samples);
  visit("tokens", report.tokens);
  visit("counted", report.counted);
  visit("truncated", report.truncated);
  visit("dropped", report.dropped);
  visit("idle", report.idle);
  visit("longest", report.longest);
}

files::SafetensorsFile opened(const std::filesystem::path& path) {
  try {
    return files::SafetensorsFile(path);
  } catch (const Error& error) {
    throw TokenFile::Refusal(error.text());
  }
}

}  // namespace

std::string about_text(const About& about) {
  json text = {{"parts", about.parts},
               {"is_packed", about.is_packed},
               {"label_kind", static_cast<int>(about.labels.kind)},
               {"label_count", about.labels.count},
               {"label_names", about.labels.names}};
  visit_report(about.report, [&](const char* name, int64_t value) { text[name] = value; });
  return text.dump();
}

std::optional<About> read_about(const std::string& text) {
  const json all = json::parse(levin::detail::shallow_json(text), nullptr, false);
  if (!all.is_object()) return std::nullopt;
  try {
    About about;
    about.parts = all.at("parts");
    about.is_packed = all.at("is_packed");
    const int kind = all.at("label_kind");
    about.labels.kind = static_cast<LabelKind>(kind);
    about.labels.count = all.at("label_count");
    about.labels.names = all.at("label_names");
    visit_report(about.report, [&](const char* name, int64_t& value) { value = all.at(name); });
    const bool is_sound = kind >= 0 && kind <= static_cast<int>(LabelKind::kNumbers) &&
                          about.parts >= 1 && about.labels.count >= 0;
    return is_sound ? std::optional(about) : std::nullopt;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string checksum_of(std::span<const files::TensorEntry> entries,
                        const files::TensorMetadata& metadata) {
  uint64_t sum = 0;
  const auto add = [&](std::string_view text) {
    sum = files::xxh3(std::as_bytes(std::span(text)), sum);
  };
  for (const auto& [name, value] : metadata) {
    if (name == "xxh3") continue;
    add(name);
    add(value);
  }
  std::map<std::string, std::span<const std::byte>> by_name;
  for (const files::TensorEntry& entry : entries) by_name[entry.name] = entry.data;
  for (const auto& [name, data] : by_name) {
    add(name);
    sum = files::xxh3(data, sum);
  }
  return fmt::format("{:016x}", sum);
}

TokenFile::TokenFile(const std::filesystem::path& path, const std::string& fingerprint)
    : file_(opened(path)) {
  check_metadata(fingerprint);
  tokens_ = list<int32_t>("tokens", "I32");
  second_ = list<int32_t>("second", "I32");
  offsets_ = list<int64_t>("offsets", "I64");
  const files::TensorEntry* labels = file_.find("labels");
  if (labels != nullptr && labels->dtype == "I64") classes_ = list<int64_t>("labels", "I64");
  if (labels != nullptr && labels->dtype != "I64") numbers_ = list<float>("labels", "F32");
  row_offsets_ = list<int64_t>("row_offsets", "I64");
  row_sequences_ = list<int64_t>("row_sequences", "I64");
  check_lists();
}

void TokenFile::check_metadata(const std::string& fingerprint) {
  const files::TensorMetadata& metadata = file_.metadata();
  const auto value = [&](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  };
  want(value("levin.rows") == kRowsVersion, "it was not written by this version of levin");
  want(value("fingerprint") == fingerprint,
       "it was made from other rows, or with another tokenizer or other options");
  want(value("xxh3") == checksum_of(file_.entries(), metadata),
       "its bytes differ from the written ones");
  const auto about = read_about(value("about"));
  want(about.has_value(), "it does not describe its contents");
  about_ = *about;
}

template <class T>
std::span<const T> TokenFile::list(const char* name, const char* dtype) const {
  const files::TensorEntry* entry = file_.find(name);
  if (entry == nullptr) return {};
  want(entry->dtype == dtype, "a list has another dtype");
  want(reinterpret_cast<uintptr_t>(entry->data.data()) % alignof(T) == 0, "a list is not aligned");
  return {reinterpret_cast<const T*>(entry->data.data()), entry->data.size() / sizeof(T)};
}

// A checksum finds damaged files, not forged ones: no place may lie outside.
void TokenFile::check_lists() const {
  want(are_offsets(offsets_, std::ssize(tokens_)), "its offsets do not fit its tokens");
  want(second_.empty() || second_.size() == tokens_.size(), "its lists differ in length");
  const int64_t sequences = num_sequences();
  want(sequences % about_.parts == 0, "a sample is incomplete");
  want(!about_.is_packed || about_.parts == 1, "its packed rows have several parts");
  const int64_t labelled = sequences / about_.parts;
  want(classes_.empty() || std::ssize(classes_) == labelled, "labels are missing");
  if (!numbers_.empty()) {
    const int64_t width = about_.labels.count;
    want(width > 0 && std::ssize(numbers_) % width == 0 && std::ssize(numbers_) / width == labelled,
         "labels are missing");
  }
  if (about_.is_packed) check_packed();
  for (int64_t i = 0; i < num_samples(); ++i) {
    want(sample_length(i) <= about_.report.longest, "a sample is longer than it says");
  }
}

void TokenFile::check_packed() const {
  const int64_t sequences = num_sequences();
  want(are_offsets(row_offsets_, sequences) && std::ssize(row_sequences_) == sequences,
       "its packed rows do not fit its sequences");
  want(std::ranges::all_of(row_sequences_,
                           [&](int64_t each) { return each >= 0 && each < sequences; }),
       "a packed row refers to a sequence that does not exist");
}

int64_t TokenFile::num_samples() const {
  return about_.is_packed ? std::ssize(row_offsets_) - 1 : num_sequences() / about_.parts;
}

std::vector<int64_t> TokenFile::sequences_of(int64_t sample) const {
  std::vector<int64_t> sequences;
  if (about_.is_packed) {
    const auto begin = static_cast<size_t>(row_offsets_[static_cast<size_t>(sample)]);
    const auto end = static_cast<size_t>(row_offsets_[static_cast<size_t>(sample) + 1]);
    const auto row = row_sequences_.subspan(begin, end - begin);
    sequences.assign(row.begin(), row.end());
  } else {
    for (int64_t i = 0; i < about_.parts; ++i) sequences.push_back(sample * about_.parts + i);
  }
  return sequences;
}

std::span<const int32_t> TokenFile::part(std::span<const int32_t> all, int64_t sequence) const {
  const auto begin = static_cast<size_t>(offsets_[static_cast<size_t>(sequence)]);
  return all.subspan(begin, static_cast<size_t>(length(sequence)));
}

int64_t TokenFile::length(int64_t sequence) const {
  return offsets_[static_cast<size_t>(sequence) + 1] - offsets_[static_cast<size_t>(sequence)];
}

int64_t TokenFile::sample_length(int64_t sample) const {
  int64_t longest = 0, sum = 0;
  for (const int64_t sequence : sequences_of(sample)) {
    longest = std::max(longest, length(sequence));
    sum += length(sequence);
  }
  return about_.is_packed ? sum : longest;
}

std::span<const float> TokenFile::numbers_of(int64_t index) const {
  const auto width = static_cast<size_t>(about_.labels.count);
  return numbers_.subspan(static_cast<size_t>(index) * width, width);
}

}  // namespace levin::text::row
