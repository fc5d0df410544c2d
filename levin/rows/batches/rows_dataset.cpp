#include "levin/rows/batches/rows_dataset.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/collate/gather.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

constexpr int64_t kNoDocument = -1;

using at::ScalarType;

/// A batch of lines of one width, written line by line.
class Page {
 public:
  Page(const TokenFile& file, const Layout& layout, const std::vector<int64_t>& sizes,
       const Batch& reuse)
      : file_(file), layout_(layout), width_(sizes.back()) {
    ids_ = add("input_ids", sizes, reuse, layout.pad_id);
    if (file.about().is_packed) {
      document_ = add("document", sizes, reuse, kNoDocument);
    } else {
      attends_ = add("attention_mask", sizes, reuse, 0);
    }
    if (file.has_second() && layout.fields != Fields::kTagged) {
      types_ = add("token_type_ids", sizes, reuse, layout.pad_type);
    }
    const bool one_a_row = layout.fields == Fields::kLabelled && !file.about().is_packed;
    if (!one_a_row && layout.fields != Fields::kTexts) {
      labels_ = add("labels", sizes, reuse, kIgnored);
    }
  }

  /// Tokens of a sequence from a place of the page on; number: of the document in its row.
  void put(int64_t sequence, int64_t place, int64_t number, uint64_t seed) {
    const std::span<const int32_t> tokens = file_.tokens(sequence);
    const auto size = std::ssize(tokens);
    std::ranges::transform(tokens, ids_ + place, id_of);
    if (attends_ != nullptr) std::fill_n(attends_ + place, size, 1);
    if (document_ != nullptr) std::fill_n(document_ + place, size, number);
    if (types_ != nullptr) std::ranges::copy(file_.second(sequence), types_ + place);
    switch (layout_.fields) {
      case Fields::kLanguage:
      case Fields::kSequences:
        std::ranges::transform(tokens, labels_ + place, [](int32_t token) -> int64_t {
          return token < 0 ? kIgnored : token;
        });
        break;
      case Fields::kMasked:
        mask_tokens(tokens, derive_seed(seed, static_cast<uint64_t>(number)), layout_, ids_ + place,
                    labels_ + place);
        break;
      case Fields::kTagged:
        std::ranges::copy(file_.second(sequence), labels_ + place);
        break;
      case Fields::kLabelled:
        if (labels_ != nullptr && size > 0) labels_[place] = file_.class_of(sequence);
        break;
      case Fields::kTexts:
        break;
    }
  }

  /// Returns the place where a line's sequence of that size begins.
  int64_t place(int64_t line, int64_t size) const {
    return line * width_ + (layout_.pads_left ? width_ - size : 0);
  }

  Batch& batch() { return batch_; }

 private:
  int64_t* add(const char* name, const std::vector<int64_t>& sizes, const Batch& reuse,
               int64_t value) {
    const at::Tensor field = levin::detail::output_for(reuse, name, sizes, ScalarType::Long);
    field.fill_(value);
    batch_.set(name, field);
    return field.mutable_data_ptr<int64_t>();
  }

  const TokenFile& file_;
  const Layout& layout_;
  int64_t width_;
  Batch batch_;
  int64_t* ids_ = nullptr;
  int64_t* attends_ = nullptr;
  int64_t* document_ = nullptr;
  int64_t* types_ = nullptr;
  int64_t* labels_ = nullptr;
};

/// A label a sample: int64 [B], float [B] or float [B, n].
at::Tensor labels_of(const TokenFile& file, std::span<const int64_t> indices, const Batch& reuse) {
  const auto rows = std::ssize(indices);
  if (file.has_classes()) {
    const at::Tensor labels = levin::detail::output_for(reuse, "labels", {rows}, ScalarType::Long);
    std::ranges::transform(indices, labels.mutable_data_ptr<int64_t>(),
                           [&](int64_t index) { return file.class_of(index); });
    return labels;
  }
  const LabelSet& set = file.about().labels;
  const std::vector<int64_t> sizes = set.kind == LabelKind::kNumbers
                                         ? std::vector<int64_t>{rows, set.count}
                                         : std::vector<int64_t>{rows};
  const at::Tensor labels = levin::detail::output_for(reuse, "labels", sizes, ScalarType::Float);
  float* out = labels.mutable_data_ptr<float>();
  for (const int64_t index : indices) out = std::ranges::copy(file.numbers_of(index), out).out;
  return labels;
}

}  // namespace

RowsDataset::RowsDataset(std::shared_ptr<const TokenFile> file, const Layout& layout)
    : file_(std::move(file)), layout_(layout) {}

int64_t RowsDataset::width_of(std::span<const int64_t> indices) const {
  if (layout_.width > 0) return layout_.width;
  int64_t longest = 1;
  for (const int64_t index : indices) longest = std::max(longest, file_->sample_length(index));
  return (longest + layout_.multiple - 1) / layout_.multiple * layout_.multiple;
}

Batch RowsDataset::draw(std::span<const int64_t> indices, const DrawContext& context,
                        Batch reuse) const {
  for (const int64_t index : indices) {
    LEVIN_CHECK(index >= 0 && index < size(), "data.samples.index",
                "got index {} for {} rows, wanted 0 <= index < {}", index, size(), size());
  }
  const int64_t parts = file_->about().parts;
  std::vector<int64_t> sizes = {std::ssize(indices)};
  if (layout_.fields == Fields::kSequences || layout_.fields == Fields::kTexts) {
    sizes.push_back(parts);
  }
  sizes.push_back(width_of(indices));
  Page page(*file_, layout_, sizes, reuse);
  const uint64_t epoch_seed = derive_seed(context.seed, static_cast<uint64_t>(context.epoch));
  int64_t line = 0;
  for (const int64_t index : indices) {
    const uint64_t seed = derive_seed(epoch_seed, static_cast<uint64_t>(index));
    const std::vector<int64_t> sequences = file_->sequences_of(index);
    if (file_->about().is_packed) {
      int64_t place = line++ * sizes.back();
      for (int64_t number = 0; number < std::ssize(sequences); ++number) {
        page.put(sequences[static_cast<size_t>(number)], place, number, seed);
        place += file_->length(sequences[static_cast<size_t>(number)]);
      }
      continue;
    }
    for (const int64_t sequence : sequences) {
      page.put(sequence, page.place(line++, file_->length(sequence)), 0, seed);
    }
  }
  const bool has_labels = file_->has_classes() || file_->has_numbers();
  if (has_labels && !page.batch().contains("labels")) {
    page.batch().set("labels", labels_of(*file_, indices, reuse));
  }
  return std::move(page.batch());
}

}  // namespace levin::text::row
