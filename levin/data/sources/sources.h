#pragma once
// Where data comes from: tensors in memory, per-sample functions, IDX files (MNIST's family).

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/data/batch.h"
#include "levin/data/dataset.h"
#include "levin/data/module.h"

// Records: the rows of a text file, each an object of named values: JSON lines and CSV.
// What a data set of one's own, or text::rows, reads; the file is mapped, its rows are found once.
//
//   auto records = data::open_records("points.jsonl");           // {"x": [0.5, 1.5], "label": 1}
//   auto dataset = data::samples(records->size(), [records](int64_t i) {
//     const data::Record record = records->read(i);
//     return data::Sample{{"x", torch::tensor(record.numbers("x"))},
//                         {"label", torch::tensor(record.integer("label"))}};
//   });

namespace levin::data {

/// One row. Every access to a value that is not there, or not of that kind, throws Error
/// "data.records.field" with file and line. Null is not there. All values of CSV are texts, which are read
/// as numbers where these are asked for.
class LEVIN_API Record {
 public:
  enum class Kind { kMissing, kFlag, kInteger, kNumber, kText, kList, kObject };

  Kind kind(std::string_view name) const;
  bool has(std::string_view name) const { return kind(name) != Kind::kMissing; }
  std::vector<std::string> names() const;  ///< as in the file

  const std::string& text(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<double> numbers(std::string_view name) const;
  std::string json(std::string_view name) const;  ///< any value

  std::string where() const;  ///< "points.jsonl, line 7"

  struct Parts;  ///< for levin's own sources
  explicit Record(std::unique_ptr<Parts> parts);
  Record(Record&&) noexcept;
  Record& operator=(Record&&) noexcept;
  ~Record();
  const Parts& parts() const { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

/// read is called from several threads at once.
class LEVIN_API Records {
 public:
  virtual ~Records();

  virtual int64_t size() const = 0;
  /// Throws Error "data.json_lines", "data.csv" or "data.utf8" with file and line where that is damaged,
  /// and "data.records.index".
  virtual Record read(int64_t index) const = 0;
  /// Whether the file tells numbers from texts; CSV does not.
  virtual bool has_kinds() const = 0;
  virtual const std::filesystem::path& path() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;  ///< of the whole file
};

using RecordsPtr = std::shared_ptr<const Records>;

/// One JSON object a line; empty lines are none. Throws Error "files.read".
LEVIN_API RecordsPtr json_lines(const std::filesystem::path& path);

struct CsvOptions {
  char delimiter = ',';
};

/// RFC 4180: a header, fields in quotes where they hold delimiters, quotes (doubled) or ends of lines;
/// these are \n or \r\n. Throws Error "files.read" and "data.csv": no header, two columns of one name,
/// quotes that do not end, or a row with more or fewer fields than the header.
LEVIN_API RecordsPtr csv(const std::filesystem::path& path, CsvOptions options = {});

/// By the file's name: .jsonl, .ndjson and .json, .csv, .tsv. Others throw Error "data.records.format".
LEVIN_API RecordsPtr open_records(const std::filesystem::path& path);

/// Makes uint8 values v into floats (v / 255 - mean) / std while they are gathered.
struct Normalize {
  std::string field;  ///< name of a uint8 tensor
  double mean = 0.0;  ///< in units of v / 255
  double std = 1.0;   ///< in units of v / 255, above 0
};

/// A data set in memory: the fields of one batch hold all samples along dim 0, on the CPU. A batch
/// is one gather, with the normalisation in the same pass: (v - 255 mean) / (255 std) in float.
/// Fields of consecutive samples that are not normalised are no copies but views of the data: do
/// not write to them. Throws Error "data.tensors.empty", "data.tensors.size" (fields of different
/// length, with both), "data.tensors.device", "data.tensors.normalize", and when read with a wrong
/// index "data.tensors.index".
LEVIN_API std::shared_ptr<Dataset> tensors(Batch fields, std::vector<Normalize> normalize = {});

struct SampleOptions {
  /// Changes a sample; draws from random give the same result whichever worker runs it.
  std::function<Sample(Sample, std::mt19937_64& random)> transform;
  /// Makes a batch of samples; unset: each field stacked (torch::stack).
  std::function<Batch(std::vector<Sample>)> collate;
};

/// A data set from a function that gives one sample by its index; called from several threads. What
/// it draws from LibTorch (torch::rand and the like) belongs to the sample, see sample_seed().
/// Throws Error "data.samples.get" (no function, or size below 0), and when read
/// "data.samples.index" and "data.samples.stack" (samples that differ in names, shape or dtype).
LEVIN_API std::shared_ptr<Dataset> samples(int64_t size, std::function<Sample(int64_t index)> get,
                                           SampleOptions options = {});

/// A tensor from an IDX file, gzipped or not: uint8, int8, int16, int32, float or double.
/// The tensor owns the bytes that were read; none are copied. Throws Error "files.read" and
/// "files.idx" with file, offset and reason.
LEVIN_API at::Tensor read_idx(const std::string& path);

struct MnistOptions {
  std::string root = "data";  ///< folder of the four IDX files, gzipped or not
  int64_t batch_size = 64;    ///< samples of a batch on one rank
  int64_t num_workers = 1;    ///< threads that fetch ahead
  int64_t limit = -1;         ///< use only so many samples of each part; -1: all

  LEVIN_API void fields(FieldVisitor& field);
};

/// Fashion-MNIST (Xiao et al. 2017): 60,000 images to train and 10,000 to test, 28x28, 10 classes.
/// Batches are {"image": float [N, 1, 28, 28], normalised to mean 0 and deviation 1; "label":
/// int64 [N]}. val_dataloader and test_dataloader both give the 10,000 test images.
/// The files are looked for in root, root/fashion-mnist, root/FashionMNIST/raw and, where root is the
/// default, where Debian's package dataset-fashion-mnist puts them, and read when their loader is
/// first asked for. Throws Error "data.mnist.limit" at once; "data.mnist.missing" listing these
/// places, "data.mnist.shape", "data.mnist.size" (images and labels differ in number) and
/// "data.mnist.label" when read.
LEVIN_API std::shared_ptr<DataModule> fashion_mnist(MnistOptions options = {});

}  // namespace levin::data

// torch_dataset: a data set of torch::data, as it is, for a DataLoader.
// Its loader then shuffles, splits over the processes and is taken up again as any other.
//
//   auto mnist = torch::data::datasets::MNIST("data").map(
//       torch::data::transforms::Normalize<>(0.1, 0.3));
//   levin::DataLoader loader(levin::data::torch_dataset(mnist),
//                            {.batch_size = 64, .shuffle = true});
//   for (const auto& batch : loader) model->forward(batch["data"]);  // and batch["target"]

namespace levin::detail {

// What get_batch of torch::data gives: a vector of samples, or (after map(Stack<>())) one of the
// batch; a sample is a tensor, or an Example of data and target. torch::data itself need not be
// included for them.

template <class T>
concept IsTorchExample = requires(T example) { example.data; };

inline Batch to_batch(const at::Tensor& data) { return {{"data", data}}; }
template <IsTorchExample Example>
Batch to_batch(const Example& example) {
  if constexpr (requires { at::Tensor(example.target); }) {
    return {{"data", example.data}, {"target", example.target}};
  } else {
    return {{"data", example.data}};
  }
}
template <class T>
Batch to_batch(const std::vector<T>& samples) {
  std::vector<at::Tensor> data, target;
  for (const T& sample : samples) {
    const Batch fields = to_batch(sample);
    data.push_back(fields["data"]);
    if (fields.contains("target")) target.push_back(fields["target"]);
  }
  if (target.empty()) return {{"data", at::stack(data)}};
  return {{"data", at::stack(data)}, {"target", at::stack(target)}};
}

LEVIN_API int64_t known_size(std::optional<size_t> size);

/// Each thread that reads at the same time has a copy of the data set, as in torch's own loader:
/// its get_batch may change it.
template <class TorchDataset>
class TorchDatasetAdapter final : public Dataset {
 public:
  explicit TorchDatasetAdapter(TorchDataset dataset) : original_(std::move(dataset)) {
    size_ = known_size(original_.size());
  }

  int64_t size() const override { return size_; }
  Batch get(std::span<const int64_t> indices) const override {
    std::unique_ptr<TorchDataset> reader = take();
    const std::vector<size_t> wanted(indices.begin(), indices.end());
    Batch batch = to_batch(reader->get_batch(wanted));
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
    return batch;
  }

 private:
  std::unique_ptr<TorchDataset> take() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<TorchDataset>(original_);
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  TorchDataset original_;
  int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TorchDataset>> idle_;
};

}  // namespace levin::detail

namespace levin::data {

/// Fields "data" and, where its examples have one, "target"; samples are stacked. What it draws
/// belongs to the batch, since a batch is what it is asked for. Throws Error
/// "data.torch_dataset.size" for one that does not know its size.
template <class TorchDataset>
DatasetPtr torch_dataset(TorchDataset dataset) {
  return std::make_shared<levin::detail::TorchDatasetAdapter<TorchDataset>>(std::move(dataset));
}

}  // namespace levin::data
