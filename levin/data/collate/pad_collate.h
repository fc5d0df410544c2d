#pragma once
// pad_collate: batches of samples that differ in length, in few shapes: each batch is padded to the
// smallest of some lengths that holds its longest sample, so that a step which is compiled (XLA,
// replay) is compiled once for each. What Hugging Face's DataCollatorWithPadding does.
//
//   auto dataset = data::samples(size, read, {.collate = data::pad_collate(
//       {.lengths = {64, 128, 256}, .values = {{"tokens", 0}, {"label", -100}}})});
//   DataLoader loader(dataset, {.batch_size = 32, .pad_last_batch = true,
//                               .padding_values = {{"label", -100}}});
//   ... batch["tokens"]  // [32, 64], [32, 128] or [32, 256]
//   ... batch["mask"]    // the same shape, false where it was padded

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/data/batch.h"

namespace levin::data {

struct PadOptions {
  /// Ascending. A batch with a sample longer than the last is an error.
  std::vector<int64_t> lengths;
  /// The fields that have the length, and what they are padded with.
  std::vector<std::pair<std::string, double>> values;
  int64_t dim = 0;  ///< of a sample's field, where its length is; below 0 from the last on
  std::string mask = "mask";  ///< the field that says where something is
};

/// For SampleOptions::collate, or to be called from IterableDataset::collate. The fields of values
/// have one length within a sample; they are [N, ...] with a length of `lengths`. mask is bool [N,
/// length], true where the sample goes. Other fields are stacked as they are. Throws Error
/// "data.pad.options" at once; when called "data.pad.length" for a sample that is longer than all
/// lengths, or whose fields differ in it, "data.pad.field" for one without such a field or dim, and
/// "data.samples.stack".
LEVIN_API std::function<Batch(std::vector<Sample>)> pad_collate(PadOptions options);

}  // namespace levin::data
