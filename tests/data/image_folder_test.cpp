// Folders of images, in the order of torchvision's ImageFolder.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_images.h"

namespace image_folders {
namespace {

using levin::data::image_folder;
using levin::data::Sample;
using levin::test::error_of;
using levin::test::kColorJpeg;
using levin::test::kRgbPng;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class ImageFolders : public ::testing::Test {
 protected:
  void put(const std::string& name, std::string_view bytes) const {
    const auto path = scratch / name;
    std::filesystem::create_directories(path.parent_path());
    levin::test::put(path, bytes);
  }
  std::string error(levin::data::ImageFolderOptions options = {}) const {
    return error_of([&] { image_folder(scratch.path(), std::move(options)); });
  }
  levin::test::Scratch scratch;
};

TEST_F(ImageFolders, ClassesAndFilesAreSorted) {
  put("dog/b.png", kRgbPng);
  put("dog/a.JPG", kRgbPng);
  put("dog/deep/c.jpeg", kRgbPng);
  put("dog/deep-er/d.png", kRgbPng);
  put("cat/z.png", kRgbPng);
  put("cat/notes.txt", "ignored");
  put("readme.png", kRgbPng);
  const auto images = image_folder(scratch.path());
  EXPECT_THAT(images->classes(), ElementsAre("cat", "dog"));
  std::vector<std::string> names;
  std::vector<int64_t> labels;
  for (const auto& [path, label] : images->files()) {
    names.push_back(path.lexically_relative(scratch.path()).string());
    labels.push_back(label);
  }
  // sorted(os.walk(...)) puts deep before deep-er
  EXPECT_THAT(names, ElementsAre("cat/z.png", "dog/a.JPG", "dog/b.png", "dog/deep/c.jpeg",
                                 "dog/deep-er/d.png"));
  EXPECT_THAT(labels, ElementsAre(0, 1, 1, 1, 1));
  EXPECT_EQ(images->size(), 5);
  EXPECT_FALSE(images->in_memory());
}

TEST_F(ImageFolders, BatchesHaveImagesAndLabels) {
  put("a/1.png", kRgbPng);
  put("b/1.jpg", kColorJpeg);
  const auto images = image_folder(scratch.path(), {.resize = {8}, .center_crop = {8, 6}});
  levin::DataLoader loader(images, {.batch_size = 2, .num_workers = 2});
  const levin::Batch batch = *loader.begin();
  EXPECT_EQ(batch["image"].sizes(), (std::vector<int64_t>{2, 3, 8, 6}));
  EXPECT_EQ(batch["image"].scalar_type(), at::kByte);
  EXPECT_TRUE(torch::equal(batch["label"], torch::tensor({0, 1})));
  EXPECT_TRUE(torch::equal(
      batch["image"][1],
      levin::data::read_image(scratch / "b/1.jpg", {.resize = {8}, .center_crop = {8, 6}})));
  const auto gray = image_folder(scratch.path(), {.gray = true, .resize = {4, 4}});
  EXPECT_EQ(gray->get(std::vector<int64_t>{1, 0})["image"].sizes(),
            (std::vector<int64_t>{2, 1, 4, 4}));
}

TEST_F(ImageFolders, TransformGetsTheSample) {
  put("a/1.png", kRgbPng);
  put("b/1.png", kRgbPng);
  const auto transform = [](Sample sample, std::mt19937_64& random) {
    sample.set("image", sample["image"].to(at::kFloat) * 0 + static_cast<double>(random() % 1000));
    return sample;
  };
  const auto first = [&](int64_t workers) {
    levin::DataLoader loader(image_folder(scratch.path(), {.transform = transform}),
                             {.batch_size = 2, .num_workers = workers, .seed = 3});
    return (*loader.begin())["image"];
  };
  EXPECT_NE(first(0)[0][0][0][0].item<float>(), first(0)[1][0][0][0].item<float>());
  EXPECT_TRUE(torch::equal(first(0), first(2)));
}

TEST_F(ImageFolders, ErrorsNameTheFile) {
  put("a/1.png", kRgbPng.substr(0, 40));
  put("a/2.jpg", kColorJpeg);
  put("a/3.png", kRgbPng);
  const auto images = image_folder(scratch.path());
  const auto read = [&](std::vector<int64_t> indices) {
    return error_of([&] { images->get(indices); });
  };
  EXPECT_THAT(read({0}), AllOf(StartsWith("data.images.decode"), HasSubstr("a/1.png")));
  EXPECT_THAT(read({1, 2}), StartsWith("data.samples.stack"));
  EXPECT_THAT(read({3}), StartsWith("data.samples.index"));
  std::filesystem::remove(scratch / "a/2.jpg");
  EXPECT_THAT(read({1}), StartsWith("files.read"));
}

TEST_F(ImageFolders, FoldersThatDoNotFitAreErrors) {
  EXPECT_EQ(error(), "data.images.empty: " + scratch.str() +
                         " has no folders; make one for each class, with its images");
  put("a/1.png", kRgbPng);
  std::filesystem::create_directories(scratch / "b");
  EXPECT_THAT(error(), AllOf(StartsWith("data.images.empty"), HasSubstr("/b has no .png")));
  put("b/1.webp", "RIFF");
  EXPECT_THAT(error(), AllOf(StartsWith("data.images.format"), HasSubstr("/b/1.webp")));
  EXPECT_THAT(error_of([&] { image_folder(scratch / "none"); }), StartsWith("files.read"));
}

}  // namespace
}  // namespace image_folders
