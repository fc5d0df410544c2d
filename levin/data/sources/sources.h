#pragma once
// Where data comes from: tensors in memory, per-sample functions, IDX files (MNIST's family).

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/data/batch.h"
#include "levin/data/dataset.h"
#include "levin/data/module.h"

namespace levin::data {

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
