#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "levin/base/check.h"
#include "levin/data/sources/sources.h"

namespace levin::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 28;
constexpr int64_t kClasses = 10;
// Mean and standard deviation of the 60,000 training images, in units of v / 255.
constexpr double kMean = 0.2860;
constexpr double kDeviation = 0.3530;

struct Files {
  fs::path images;
  fs::path labels;
};

std::optional<fs::path> packed_or_not(const fs::path& file) {
  std::error_code ignored;
  if (fs::exists(file, ignored)) return file;
  const fs::path packed = file.string() + ".gz";
  if (fs::exists(packed, ignored)) return packed;
  return std::nullopt;
}

/// Images and labels come from one folder, so that they belong together. A folder with half of the
/// pair ends the search, since the user meant it. The system's folder is searched only with the
/// default root.
Files find_files(const fs::path& root, const std::string& part) {
  std::vector<fs::path> folders = {root, root / "fashion-mnist", root / "FashionMNIST" / "raw"};
  if (root == MnistOptions().root) folders.emplace_back("/usr/share/datasets/fashion-mnist");
  std::string looked;
  for (const fs::path& folder : folders) {
    const auto images = packed_or_not(folder / (part + "-images-idx3-ubyte"));
    const auto labels = packed_or_not(folder / (part + "-labels-idx1-ubyte"));
    if (images && labels) return {*images, *labels};
    looked += (looked.empty() ? "" : ", ") + folder.string();
    if (images || labels) break;
  }
  LEVIN_FAIL(
      "data.mnist.missing",
      "no {0}-images-idx3-ubyte[.gz] with {0}-labels-idx1-ubyte[.gz] in any of: {1}; set root to "
      "the folder that holds them, or leave it out and install Debian's package "
      "dataset-fashion-mnist",
      part, looked);
}

at::Tensor read_images(const fs::path& file) {
  at::Tensor images = read_idx(file.string());
  LEVIN_CHECK(images.scalar_type() == at::kByte && images.dim() == 3 && images.size(1) == kSide &&
                  images.size(2) == kSide,
              "data.mnist.shape", "{} holds {} {}, wanted uint8 [N, {}, {}]", file.string(),
              c10::toString(images.scalar_type()), c10::str(images.sizes()), kSide, kSide);
  return images.unsqueeze(1);
}

at::Tensor read_labels(const fs::path& file) {
  const at::Tensor labels = read_idx(file.string());
  LEVIN_CHECK(labels.scalar_type() == at::kByte && labels.dim() == 1, "data.mnist.shape",
              "{} holds {} {}, wanted uint8 [N]", file.string(),
              c10::toString(labels.scalar_type()), c10::str(labels.sizes()));
  LEVIN_CHECK(labels.numel() == 0 || labels.max().item<int64_t>() < kClasses, "data.mnist.label",
              "{} holds the label {}, wanted 0 to {}", file.string(), labels.max().item<int64_t>(),
              kClasses - 1);
  return labels.to(at::kLong);
}

DatasetPtr read_part(const MnistOptions& options, const std::string& part) {
  const Files files = find_files(options.root, part);
  at::Tensor images = read_images(files.images);
  at::Tensor labels = read_labels(files.labels);
  LEVIN_CHECK(images.size(0) == labels.size(0), "data.mnist.size",
              "{} holds {} images but {} holds {} labels, wanted equal numbers",
              files.images.string(), images.size(0), files.labels.string(), labels.size(0));
  if (options.limit >= 0 && options.limit < images.size(0)) {
    images = images.narrow(0, 0, options.limit);
    labels = labels.narrow(0, 0, options.limit);
  }
  return tensors({{"image", images}, {"label", labels}}, {{"image", kMean, kDeviation}});
}

/// Reads a part of the data when it is first asked for.
class FashionMnist final : public DataModule {
 public:
  explicit FashionMnist(MnistOptions options) : options_(std::move(options)) {}

  std::optional<DataLoader> train_dataloader() override {
    if (train_ == nullptr) train_ = read_part(options_, "train");
    return loader(train_, /*shuffle=*/true);
  }
  std::optional<DataLoader> val_dataloader() override {
    if (test_ == nullptr) test_ = read_part(options_, "t10k");
    return loader(test_, /*shuffle=*/false);
  }
  std::optional<DataLoader> test_dataloader() override { return val_dataloader(); }
  std::optional<DataLoader> predict_dataloader() override { return val_dataloader(); }

 private:
  DataLoader loader(const DatasetPtr& dataset, bool shuffle) const {
    return {dataset,
            {.batch_size = options_.batch_size,
             .shuffle = shuffle,
             .num_workers = options_.num_workers}};
  }

  MnistOptions options_;
  DatasetPtr train_;
  DatasetPtr test_;
};

}  // namespace

void MnistOptions::fields(FieldVisitor& field) {
  field("root", root, "folder with the four IDX files, gzipped or not");
  field("batch_size", batch_size, "samples per batch on one rank");
  field("num_workers", num_workers, "threads that prefetch batches");
  field("limit", limit, "use only the first N samples of each part; -1: all");
}

std::shared_ptr<DataModule> fashion_mnist(MnistOptions options) {
  LEVIN_CHECK(options.limit == -1 || options.limit > 0, "data.mnist.limit",
              "got {}, wanted at least 1, or -1 for all", options.limit);
  return std::make_shared<FashionMnist>(std::move(options));
}

}  // namespace levin::data
