#pragma once
// Sources of data: datasets of tensors in memory, of a function per sample, of JSON lines and CSV
// files, of IDX files (MNIST, Fashion-MNIST), and of torch::data.
//
//   auto dataset = data::tensors({{"x", x}, {"y", y}});           // samples along dim 0
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});

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

// Records: the rows of a JSON lines or CSV file, each an object of named values.
// A dataset of your own or text::rows reads them. The file is memory-mapped and its rows are
// located once.
//
//   auto records = data::open_records("points.jsonl");           // {"x": [0.5, 1.5], "label": 1}
//   auto dataset = data::samples(records->size(), [records](int64_t i) {
//     const data::Record record = records->read(i);
//     return data::Sample{{"x", torch::tensor(record.numbers("x"))},
//                         {"label", torch::tensor(record.integer("label"))}};
//   });

namespace levin::data {

struct RecordParts;

/// One row. The functions that read a value throw Error "data.records.field", with file and line,
/// if the value is missing or of another type. A null counts as missing. All values of a CSV file
/// are strings; integer() and number() parse them.
class LEVIN_API Record {
 public:
  /// Type of a value.
  enum class Kind {
    kMissing,  ///< no such value, or null
    kFlag,     ///< boolean
    kInteger,  ///< integer
    kNumber,   ///< floating-point number
    kText,     ///< string
    kList,     ///< list
    kObject    ///< object
  };

  /// Type of the value of this name; kMissing if there is none.
  Kind kind(std::string_view name) const;
  /// Returns whether the row has a value of this name that is not null.
  bool has(std::string_view name) const { return kind(name) != Kind::kMissing; }
  std::vector<std::string> names() const;  ///< names of the values, in the order of the file

  /// Value as a string.
  const std::string& text(std::string_view name) const;
  /// Value as an integer; a string must be one as a whole.
  int64_t integer(std::string_view name) const;
  /// Value as a number; an integer counts as one, and so does a string that is one as a whole.
  double number(std::string_view name) const;
  /// Value as a list of strings.
  std::vector<std::string> texts(std::string_view name) const;
  /// Value as a list of numbers.
  std::vector<double> numbers(std::string_view name) const;
  std::string json(std::string_view name) const;  ///< value of any type as JSON

  std::string where() const;  ///< place of the row for messages: "points.jsonl, line 7"

  /// Moves the row.
  Record(Record&&) noexcept;
  /// Moves the row.
  Record& operator=(Record&&) noexcept;
  ~Record();

 private:
  friend const RecordParts& parts_of(const Record& record);
  friend Record make_record(RecordParts parts);
  explicit Record(std::unique_ptr<RecordParts> parts);

  std::unique_ptr<RecordParts> parts_;
};

/// The rows of a file. Several threads may call read() at the same time.
class LEVIN_API Records {
 public:
  virtual ~Records();

  /// Number of rows.
  virtual int64_t size() const = 0;
  /// Reads a row. Throws Error "data.json_lines", "data.csv" or "data.utf8", with file and line, if
  /// the row is not valid, and "data.records.index" for an index outside [0, size()).
  virtual Record read(int64_t index) const = 0;
  /// Returns whether the file distinguishes numbers from strings. JSON does; CSV does not.
  virtual bool has_kinds() const = 0;
  /// Path of the file.
  virtual const std::filesystem::path& path() const = 0;
  virtual std::span<const std::byte> bytes() const = 0;  ///< the whole file
};

/// Shared handle of the rows of a file.
using RecordsPtr = std::shared_ptr<const Records>;

/// Opens a JSON lines file: one JSON object per line. Empty lines are skipped. Throws Error
/// "files.read".
LEVIN_API RecordsPtr json_lines(const std::filesystem::path& path);

/// Options of csv().
struct CsvOptions {
  char delimiter = ',';  ///< character between two fields
};

/// Opens a CSV file as in RFC 4180. Its first row is a header. A field is in quotes if it
/// contains a delimiter, a quote (which is doubled) or a line break. Lines end in LF or CRLF.
/// Throws Error "files.read", and "data.csv" for a file without a header, two columns of one name,
/// or a quote that is not closed. Reading a row with more or fewer fields than the header throws
/// "data.csv" too.
LEVIN_API RecordsPtr csv(const std::filesystem::path& path, CsvOptions options = {});

/// Opens a file by its extension: json_lines() for .jsonl, .ndjson and .json, csv() for .csv and
/// .tsv (delimited by tabs). Other extensions throw Error "data.records.format".
LEVIN_API RecordsPtr open_records(const std::filesystem::path& path);

/// Normalization of a field: uint8 values v become the float32 values (v / 255 - mean) / std when a
/// batch is gathered.
struct Normalize {
  std::string field;  ///< name of a uint8 field
  double mean = 0.0;  ///< mean, in units of v / 255
  double std = 1.0;   ///< standard deviation, in units of v / 255, above 0
};

/// Returns a dataset of tensors in memory, as torch.utils.data.TensorDataset. `fields` holds all
/// samples along dim 0, on the CPU. A batch is one gather, which also normalizes: it computes (v -
/// 255 mean) / (255 std) in float32. Fields that are not normalized are views of the data, not
/// copies, if the samples are consecutive: do not write to them. Throws Error "data.tensors.empty"
/// (no field), "data.tensors.size" (an undefined tensor or a scalar, or fields of different
/// lengths; the message names both), "data.tensors.device" (not dense, or not on the CPU) and
/// "data.tensors.normalize". Reading an index out of range throws "data.tensors.index".
LEVIN_API std::shared_ptr<Dataset> tensors(Batch fields, std::vector<Normalize> normalize = {});

/// Options of samples().
struct SampleOptions {
  /// Transforms a sample. `random` is seeded by the loader's seed, the epoch and the index, so the
  /// result does not depend on which worker runs it.
  std::function<Sample(Sample, std::mt19937_64& random)> transform;
  /// Collates samples into a batch; unset: each field is stacked (torch::stack).
  std::function<Batch(std::vector<Sample>)> collate;
};

/// Returns a dataset of `size` samples. get() returns a sample by its index. Several threads
/// call get() at the same time. Random numbers that it draws from LibTorch (torch::rand and the
/// like) depend only on the loader's seed, the epoch and the sample; see sample_seed(). Throws
/// Error "data.samples.get" if there is no function or size is below 0. Reading throws
/// "data.samples.index", and "data.samples.stack" for samples that differ in names, shape or dtype.
LEVIN_API std::shared_ptr<Dataset> samples(int64_t size, std::function<Sample(int64_t index)> get,
                                           SampleOptions options = {});

/// Reads a tensor from an IDX file, gzipped or not: uint8, int8, int16, int32, float32 or float64.
/// The tensor owns the bytes that were read, without a copy. Throws Error "files.read", and
/// "files.idx" with file, offset and reason.
LEVIN_API at::Tensor read_idx(const std::string& path);

/// Options of fashion_mnist().
struct MnistOptions {
  std::string root = "data";  ///< folder with the four IDX files, gzipped or not
  int64_t batch_size = 64;    ///< samples per batch on one rank
  int64_t num_workers = 1;    ///< threads that prefetch batches
  int64_t limit = -1;         ///< use only the first N samples of each part; -1: all

  /// Visits all options, for the command line and TOML files.
  LEVIN_API void fields(FieldVisitor& field);
};

/// Returns the data module of Fashion-MNIST (Xiao et al. 2017): 60,000 training images and 10,000
/// test images of 28x28 pixels in 10 classes. Batches are {"image": float32 [N, 1, 28, 28],
/// normalized to mean 0 and standard deviation 1; "label": int64 [N]}. val_dataloader,
/// test_dataloader and predict_dataloader all give the 10,000 test images. A file is looked for in
/// root, root/fashion-mnist, root/FashionMNIST/raw and, if root has its default, in the folder of
/// Debian's package dataset-fashion-mnist. It is read when its loader is first requested. Throws
/// Error "data.mnist.limit" at once. Reading throws "data.mnist.missing", which lists these places,
/// "data.mnist.shape", "data.mnist.size" (images and labels differ in number) and
/// "data.mnist.label".
LEVIN_API std::shared_ptr<DataModule> fashion_mnist(MnistOptions options = {});

}  // namespace levin::data

// torch_dataset: uses a map-style dataset of torch::data in a DataLoader, which then shuffles it,
// splits it over ranks and resumes within an epoch, as for any other dataset.
//
//   auto mnist = torch::data::datasets::MNIST("data").map(
//       torch::data::transforms::Normalize<>(0.1, 0.3));
//   levin::DataLoader loader(levin::data::torch_dataset(mnist),
//                            {.batch_size = 64, .shuffle = true});
//   for (const auto& batch : loader) model->forward(batch["data"]);  // and batch["target"]

namespace levin::detail {

// get_batch() of torch::data returns a vector of samples or, after map(Stack<>()), one sample for
// the batch. A sample is a tensor, or an Example with data and target. These templates do not need
// torch::data to be included.

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

/// Threads that read at the same time have a copy of the dataset each, as in LibTorch's own loader,
/// since get_batch() may change the dataset.
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

/// Returns the dataset with the field "data" and, if its examples have a target, "target". Samples
/// are stacked. Random numbers that it draws depend on the batch rather than on each sample,
/// because it is read a batch at a time. Throws Error "data.torch_dataset.size" if the dataset does
/// not know its size.
template <class TorchDataset>
DatasetPtr torch_dataset(TorchDataset dataset) {
  return std::make_shared<levin::detail::TorchDatasetAdapter<TorchDataset>>(std::move(dataset));
}

}  // namespace levin::data
