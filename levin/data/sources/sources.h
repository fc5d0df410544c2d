#pragma once
// Sources of data: datasets of tensors in memory, of a function per sample, of JSON lines and CSV
// files, of IDX files (MNIST, Fashion-MNIST), CIFAR-10, NumPy files, folders of images (PNG,
// JPEG), and tar shards (WebDataset).
//
//   auto dataset = data::tensors({{"x", x}, {"y", y}});           // samples along dim 0
//   DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
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

/// Opens a Parquet file, if levin was built with Apache Arrow (LEVIN_WITH_ARROW). Strings, numbers,
/// booleans, lists, structs and maps become what JSON would have; dates, times and decimals become
/// strings. A group of rows is read when a row of it is, and the groups used last are kept. Throws
/// Error "files.read"; "data.parquet" for a file that is corrupt, and for a column of another type;
/// and "data.parquet.library" if levin was built without Arrow.
LEVIN_API RecordsPtr parquet(const std::filesystem::path& path);

/// Opens a file by its extension: json_lines() for .jsonl, .ndjson and .json, csv() for .csv and
/// .tsv (delimited by tabs), parquet() for .parquet. Other extensions throw Error
/// "data.records.format".
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

// Images: PNG and JPEG files, alone or in folders of classes, as torchvision's ImageFolder.
//
//   auto images = data::image_folder("imagenet/train", {.resize = {256}, .center_crop = {224}});
//   DataLoader loader(images, {.batch_size = 64, .shuffle = true, .num_workers = 8});

namespace levin::data {

/// How an image file is decoded.
struct ImageOptions {
  bool gray = false;  ///< one channel, as convert("L") of PIL; otherwise three, as convert("RGB")
  /// {size}: resizes the shorter edge to it; {height, width}: resizes to it. Bilinear with
  /// antialiasing, as Resize of torchvision. {} keeps the size.
  std::vector<int64_t> resize;
  /// {size} or {height, width}: cuts the centre out, after resizing, as CenterCrop of torchvision.
  /// A smaller image is padded with 0.
  std::vector<int64_t> center_crop;
  int64_t max_pixels = 89'478'485;  ///< largest height * width to decode (the limit of PIL)
};

/// Decodes a PNG or JPEG image to uint8 [3, height, width], or [1, height, width] with gray. The
/// first bytes decide on the format. `name` stands for the image in messages. Alpha is dropped;
/// 16-bit values keep their high byte; CMYK is converted as in PIL; EXIF is ignored. Throws Error
/// "data.images.format" for other formats, "data.images.decode" for an image that is corrupt or
/// truncated, "data.images.size" above max_pixels, "data.images.library" if levin was built without
/// libpng or libjpeg, and "data.images.options".
LEVIN_API at::Tensor decode_image(std::span<const std::byte> bytes, const std::string& name,
                                  const ImageOptions& options = {});

/// Reads an image file; see decode_image(). Throws Error "files.read" too.
LEVIN_API at::Tensor read_image(const std::filesystem::path& path,
                                const ImageOptions& options = {});

/// Options of image_folder().
struct ImageFolderOptions {
  bool gray = false;                 ///< see ImageOptions
  std::vector<int64_t> resize;       ///< see ImageOptions
  std::vector<int64_t> center_crop;  ///< see ImageOptions
  int64_t max_pixels = 89'478'485;   ///< see ImageOptions
  /// Transforms a sample {"image", "label"}; see SampleOptions.
  std::function<Sample(Sample, std::mt19937_64& random)> transform;
};

/// Images in folders of classes.
class LEVIN_API ImageFolder : public Dataset {
 public:
  /// Names of the classes; a label is an index of them.
  virtual const std::vector<std::string>& classes() const = 0;
  /// File and label of each sample.
  virtual const std::vector<std::pair<std::filesystem::path, int64_t>>& files() const = 0;
};

/// Returns the images below `root`, as torchvision's ImageFolder: each folder in root is a class,
/// in sorted order, and holds .png, .jpg and .jpeg files at any depth. Batches are {"image": uint8
/// [N, 3, H, W], "label": int64 [N]}; images of a batch need one size. Files of other names are
/// ignored, but other formats that torchvision would read (.bmp, .tif, .webp, ...) throw Error
/// "data.images.format". Throws Error "data.images.empty" if there is no class, or a class without
/// images, and "files.read". Reading throws as read_image().
LEVIN_API std::shared_ptr<ImageFolder> image_folder(const std::filesystem::path& root,
                                                    ImageFolderOptions options = {});

}  // namespace levin::data

// Arrays and shards of other programs: NumPy's .npy and .npz, CIFAR-10, WebDataset.
//
//   auto points = data::tensors(data::read_npz("points.npz"));
//   auto cifar = data::tensors(data::read_cifar10("data"));

namespace levin::data {

/// Reads a .npy file of NumPy. The tensor is a memory map of the file: do not write to it.
/// Booleans, integers, floating-point and complex numbers in little-endian order, in C or Fortran
/// order. Throws Error "files.read", and "data.npy" with file and reason.
LEVIN_API at::Tensor read_npy(const std::filesystem::path& path);

/// Reads the arrays of a .npz file (numpy.savez, numpy.savez_compressed), by name. Arrays that are
/// not compressed are memory maps. Throws Error "files.read", "data.npy" and "data.npz".
LEVIN_API Batch read_npz(const std::filesystem::path& path);

/// Options of read_cifar10().
struct CifarOptions {
  bool train = true;  ///< the 50,000 training images; otherwise the 10,000 test images
};

/// Reads the binary version of CIFAR-10 (Krizhevsky 2009): {"image": uint8 [N, 3, 32, 32], "label":
/// int64 [N]}. The files data_batch_1.bin to data_batch_5.bin and test_batch.bin are in root or in
/// root/cifar-10-batches-bin. Throws Error "files.read", "data.cifar.missing", and
/// "data.cifar.size" and "data.cifar.label" for files of another content.
LEVIN_API Batch read_cifar10(const std::filesystem::path& root, CifarOptions options = {});

/// The files of a sample in a tar shard: files beside each other with one name up to the first dot.
struct TarSample {
  std::string key;    ///< path up to the first dot of the file's name
  std::string shard;  ///< path of the tar file
  std::vector<std::pair<std::string, std::span<const std::byte>>> files;  ///< extension, bytes

  /// Bytes of the file with this extension ("jpg", "seg.png"). Throws Error "data.tar.field", which
  /// lists the extensions, if there is none.
  LEVIN_API std::span<const std::byte> bytes(std::string_view extension) const;
  /// The bytes as text.
  LEVIN_API std::string text(std::string_view extension) const;
  /// The text as an integer, as of .cls files. Throws Error "data.tar.field" if it is none.
  LEVIN_API int64_t integer(std::string_view extension) const;
  /// Shard and key for messages: "train-0.tar: images/0001".
  LEVIN_API std::string where() const;
};

/// Returns a streaming dataset of tar files, as WebDataset: each file is a shard. `decode` makes a
/// sample of the files; it runs in several threads. A path may have ranges: "train-{000..127}.tar".
/// The files are memory maps. ustar, GNU and PAX archives are read, compressed ones not. Throws
/// Error "data.tar.options" (no path, no function or a wrong range), and "files.read" for a file
/// that is missing. Reading throws "data.tar" with file and offset for a corrupt archive.
LEVIN_API IterableDatasetPtr tar_shards(const std::vector<std::string>& paths,
                                        std::function<Sample(const TarSample& sample)> decode);

}  // namespace levin::data

// Token files: the ids of a tokenized corpus, memory-mapped, as nanoGPT, llm.c and Megatron-LM write
// them.
//
//   auto tokens = data::open_token_file("train.bin", {.dtype = "uint16"});
//   DataLoader loader(data::token_windows(tokens, {.length = 1024, .vocab_size = 50257}),
//                     {.batch_size = 8, .shuffle = true});
//   ... batch["tokens"], batch["targets"]                  // int64 [8, 1024]; targets come one later

namespace levin::data {

/// Options of open_token_file().
struct TokenFileOptions {
  /// Type of an id: "uint8", "uint16", "uint32", "int32" or "int64", in little-endian order. "auto":
  /// the file says it, by Megatron's index beside it (.idx) or by the header of llm.c.
  std::string dtype = "auto";
};

/// A file of token ids. Several threads may read it at the same time.
class LEVIN_API TokenFile {
 public:
  virtual ~TokenFile();
  /// Number of tokens.
  virtual int64_t size() const = 0;
  /// Returns tokens [begin, begin + count) as int64 [count]. Throws Error "data.tokens.index" for a
  /// range outside of the file.
  virtual at::Tensor read(int64_t begin, int64_t count) const = 0;
  /// Number of sequences in Megatron's index; 1 without an index.
  virtual int64_t num_sequences() const = 0;
  /// Returns a sequence as int64 [length]. Throws Error "data.tokens.index".
  virtual at::Tensor sequence(int64_t index) const = 0;
  /// Path of the file.
  virtual const std::filesystem::path& path() const = 0;
};

/// Opens a token file: ids one after another (nanoGPT), the same after the header of llm.c, or
/// Megatron's NAME.bin with NAME.idx. Throws Error "files.read", and "data.tokens" with file and
/// reason: an unknown dtype, a size that does not fit the dtype, header or index, or an index that
/// is corrupt.
LEVIN_API std::shared_ptr<const TokenFile> open_token_file(const std::filesystem::path& path,
                                                           const TokenFileOptions& options = {});

/// Options of token_windows().
struct TokenWindowOptions {
  int64_t length = 1024;   ///< tokens of a sample
  int64_t stride = 0;      ///< tokens between the starts of two samples; 0: length
  int64_t vocab_size = 0;  ///< every id has to be smaller; 0: not checked
};

/// Returns the windows of a token file as samples, as nanoGPT: {"tokens": int64 [N, length],
/// "targets": int64 [N, length]}; targets[i] is the token after tokens[i]. Sample i begins at i *
/// stride, across the borders of sequences. Throws Error "data.tokens.options" for options below
/// their range, or a file that is shorter than length + 1. Reading throws "data.tokens.index", and
/// "data.tokens.vocab" for an id that is negative or not below vocab_size.
LEVIN_API DatasetPtr token_windows(std::shared_ptr<const TokenFile> tokens,
                                   TokenWindowOptions options = {});

}  // namespace levin::data
