#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/sources/sources.h"
#include "tests/data/write_idx.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;

using levin::data::fashion_mnist;
using levin::test::error_of;
using levin::test::TemporaryFolder;
using levin::test::write_idx;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

at::Tensor images(int64_t count) { return torch::randint(0, 256, {count, 28, 28}, at::kByte); }
at::Tensor labels(int64_t count) { return torch::randint(0, 10, {count}, at::kByte); }

void write_part(const fs::path& folder, const std::string& part, const at::Tensor& images,
                const at::Tensor& labels) {
  write_idx(folder / (part + "-images-idx3-ubyte"), images);
  write_idx(folder / (part + "-labels-idx1-ubyte"), labels);
}

TEST(FashionMnist, GivesNormalizedImagesAndLabels) {
  const TemporaryFolder folder;
  const auto image = images(20);
  const auto label = labels(20);
  write_part(folder.path(), "t10k", image, label);
  auto data = fashion_mnist({.root = folder.path(), .batch_size = 20});
  auto loader = data->test_dataloader().value();
  levin::Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch["image"].sizes(), (std::vector<int64_t>{20, 1, 28, 28}));
  EXPECT_TRUE(torch::allclose(batch["image"].squeeze(1),
                              (image.to(at::kFloat) / 255 - 0.2860) / 0.3530, 1e-5, 1e-6));
  EXPECT_EQ(batch["label"].scalar_type(), at::kLong);
  EXPECT_TRUE(torch::equal(batch["label"], label.to(at::kLong)));
}

TEST(FashionMnist, ShufflesTheTrainingImagesAlone) {
  const TemporaryFolder folder;
  const auto label = torch::arange(60).remainder(10).to(at::kByte);
  for (const char* part : {"train", "t10k"}) write_part(folder.path(), part, images(60), label);
  auto data = fashion_mnist({.root = folder.path(), .batch_size = 60});
  levin::Batch batch;
  data->train_dataloader()->next(batch);
  EXPECT_FALSE(torch::equal(batch["label"], label.to(at::kLong)));
  data->val_dataloader()->next(batch);
  EXPECT_TRUE(torch::equal(batch["label"], label.to(at::kLong)));
}

TEST(FashionMnist, ReadsAPartWhenItIsAskedFor) {
  const TemporaryFolder folder;
  write_part(folder.path(), "t10k", images(5), labels(5));
  write_idx(folder.path() / "train-images-idx3-ubyte", images(5));
  auto data = fashion_mnist({.root = folder.path()});
  EXPECT_EQ(data->val_dataloader()->dataset()->size(), 5);
  EXPECT_THAT(error_of([&] { data->train_dataloader(); }), StartsWith("data.mnist.missing"));
}

TEST(FashionMnist, LooksInTheFoldersOfItsKin) {
  for (const char* below : {"", "fashion-mnist", "FashionMNIST/raw"}) {
    const TemporaryFolder folder;
    write_part(folder.path() / below, "t10k", images(3), labels(3));
    auto data = fashion_mnist({.root = folder.path()});
    EXPECT_EQ(data->test_dataloader()->dataset()->size(), 3) << below;
  }
}

TEST(FashionMnist, LimitTakesTheFirstSamples) {
  const TemporaryFolder folder;
  write_part(folder.path(), "t10k", images(9), labels(9));
  for (const auto& [limit, wanted] :
       std::vector<std::pair<int64_t, int64_t>>{{4, 4}, {90, 9}, {-1, 9}}) {
    auto data = fashion_mnist({.root = folder.path(), .limit = limit});
    EXPECT_EQ(data->test_dataloader()->dataset()->size(), wanted);
  }
}

TEST(FashionMnist, AHalfOfThePairIsAnErrorThatListsThePlaces) {
  const TemporaryFolder folder;
  write_idx(folder.path() / "FashionMNIST" / "raw" / "train-images-idx3-ubyte", images(5));
  auto data = fashion_mnist({.root = folder.path()});
  EXPECT_THAT(error_of([&] { data->train_dataloader(); }),
              AllOf(StartsWith("data.mnist.missing: "), HasSubstr(folder.path().string() + ","),
                    HasSubstr((folder.path() / "fashion-mnist").string()),
                    HasSubstr((folder.path() / "FashionMNIST/raw").string()),
                    HasSubstr("dataset-fashion-mnist"), HasSubstr("set root")));
}

// Also where Debian's package is installed: who names a folder wants no other data.
TEST(FashionMnist, AFolderThatIsNamedIsTheOnlyOne) {
  const TemporaryFolder folder;
  auto data = fashion_mnist({.root = folder.path() / "typo"});
  EXPECT_THAT(error_of([&] { data->train_dataloader(); }),
              AllOf(StartsWith("data.mnist.missing: "),
                    HasSubstr((folder.path() / "typo").string()), Not(HasSubstr("/usr/share"))));
}

TEST(FashionMnist, DamagedFilesAreErrorsThatNameThem) {
  struct Case {
    at::Tensor images;
    at::Tensor labels;
    const char* error;
  };
  const std::vector<Case> cases = {
      {images(5), labels(4), "data.mnist.size"},
      {torch::zeros({5, 32, 32}, at::kByte), labels(5), "data.mnist.shape"},
      {torch::zeros({5, 28, 28}), labels(5), "data.mnist.shape"},
      {images(5), torch::zeros({5, 1}, at::kByte), "data.mnist.shape"},
      {images(5), torch::full({5}, 10, at::kByte), "data.mnist.label"},
  };
  for (const Case& damaged : cases) {
    const TemporaryFolder folder;
    write_part(folder.path(), "train", damaged.images, damaged.labels);
    auto data = fashion_mnist({.root = folder.path()});
    EXPECT_THAT(error_of([&] { data->train_dataloader(); }),
                AllOf(StartsWith(damaged.error), HasSubstr(folder.path().string())));
  }
}

TEST(FashionMnist, ATruncatedFileIsAnErrorWithFileAndOffset) {
  const TemporaryFolder folder;
  write_part(folder.path(), "t10k", images(5), labels(5));
  const fs::path file = folder.path() / "t10k-images-idx3-ubyte";
  fs::resize_file(file, 1000);
  auto data = fashion_mnist({.root = folder.path()});
  EXPECT_THAT(error_of([&] { data->val_dataloader(); }),
              AllOf(StartsWith("files.idx: "), HasSubstr(file.string()), HasSubstr("1000")));
}

TEST(FashionMnist, ALimitOfNothingIsAnError) {
  EXPECT_THAT(error_of([] { fashion_mnist({.limit = 0}); }), StartsWith("data.mnist.limit: got 0"));
}

TEST(FashionMnist, RealImagesHaveMeanZeroAndDeviationOne) {
  const fs::path folder = "/usr/share/datasets/fashion-mnist";
  if (!fs::exists(folder)) GTEST_SKIP() << "package dataset-fashion-mnist is not installed";
  auto data = fashion_mnist({.root = folder, .batch_size = 10000});
  levin::Batch batch;
  data->test_dataloader()->next(batch);
  EXPECT_EQ(batch.size(), 10000);
  EXPECT_NEAR(batch["image"].mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(batch["image"].std().item<double>(), 1, 0.01);
  EXPECT_TRUE(torch::equal(batch["label"].bincount(), torch::full({10}, 1000)));
}

TEST(MnistOptions, AreReadFromFlags) {
  const char* argv[] = {"program", "--root=elsewhere", "--limit", "100"};
  const auto options = levin::parse<levin::data::MnistOptions>(4, argv, {.batch_size = 32});
  EXPECT_EQ(options.root, "elsewhere");
  EXPECT_EQ(options.limit, 100);
  EXPECT_EQ(options.batch_size, 32);
}

TEST(DataModule, HasNoLoadersUnlessGiven) {
  levin::DataModule module;
  EXPECT_FALSE(module.train_dataloader().has_value());
  EXPECT_TRUE(module.state_dict().empty());
}

}  // namespace
