#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "levin/base/check.h"
#include "levin/data/sources/sources.h"

namespace levin::data {
namespace {

using LabeledFiles = std::vector<std::pair<std::filesystem::path, int64_t>>;

class FolderDataset final : public ImageFolder {
 public:
  FolderDataset(std::vector<std::string> classes, LabeledFiles files, ImageFolderOptions options)
      : classes_(std::move(classes)), files_(std::make_shared<LabeledFiles>(std::move(files))) {
    const ImageOptions image = {.gray = options.gray,
                                .resize = std::move(options.resize),
                                .center_crop = std::move(options.center_crop),
                                .max_pixels = options.max_pixels};
    const auto read = [files = files_, image](int64_t index) {
      const auto& [path, label] = (*files)[static_cast<size_t>(index)];
      return Sample{{"image", read_image(path, image)},
                    {"label", at::scalar_tensor(label, at::kLong)}};
    };
    samples_ = samples(std::ssize(*files_), read, {.transform = std::move(options.transform)});
  }

  const std::vector<std::string>& classes() const override { return classes_; }
  const LabeledFiles& files() const override { return *files_; }
  int64_t size() const override { return samples_->size(); }
  Batch get(std::span<const int64_t> indices) const override { return samples_->get(indices); }
  Batch draw(std::span<const int64_t> indices, const DrawContext& context,
             Batch reuse) const override {
    return samples_->draw(indices, context, std::move(reuse));
  }

 private:
  std::vector<std::string> classes_;
  std::shared_ptr<const LabeledFiles> files_;
  DatasetPtr samples_;
};

std::string lower_extension(const std::filesystem::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char letter) {
    return static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 'a' - 'A' : letter);
  });
  return extension;
}

/// Returns whether a file counts as an image.
bool is_image_name(const std::filesystem::path& path) {
  const std::string extension = lower_extension(path);
  if (extension == ".png" || extension == ".jpg" || extension == ".jpeg") return true;
  constexpr std::array<std::string_view, 7> kOthers = {".ppm",  ".bmp",  ".pgm", ".tif",
                                                       ".tiff", ".webp", ".gif"};
  LEVIN_CHECK(std::ranges::find(kOthers, extension) == kOthers.end(), "data.images.format",
              "{} is of a format that levin does not read; convert it to PNG or JPEG, or remove it",
              path.string());
  return false;
}

/// The images below a folder in the order of torchvision: by folder, then by name.
std::vector<std::filesystem::path> images_below(const std::filesystem::path& folder) {
  using std::filesystem::directory_options;
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           folder, directory_options::follow_directory_symlink)) {
    if (!entry.is_directory() && is_image_name(entry.path())) {
      names.emplace_back(entry.path().parent_path().string(), entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  std::vector<std::filesystem::path> images;
  for (const auto& [parent, name] : names) {
    images.push_back(std::filesystem::path(parent) / name);
  }
  return images;
}

}  // namespace

std::shared_ptr<ImageFolder> image_folder(const std::filesystem::path& root,
                                          ImageFolderOptions options) {
  std::vector<std::string> classes;
  LabeledFiles files;
  try {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (entry.is_directory()) classes.push_back(entry.path().filename().string());
    }
    std::ranges::sort(classes);
    for (size_t label = 0; label < classes.size(); ++label) {
      const auto images = images_below(root / classes[label]);
      LEVIN_CHECK(!images.empty(), "data.images.empty",
                  "{} has no .png, .jpg or .jpeg file; add images or remove the folder",
                  (root / classes[label]).string());
      for (const auto& path : images) files.emplace_back(path, static_cast<int64_t>(label));
    }
  } catch (const std::filesystem::filesystem_error& error) {
    LEVIN_FAIL("files.read", "cannot read the folder {}: {}", root.string(),
               error.code().message());
  }
  LEVIN_CHECK(!classes.empty(), "data.images.empty",
              "{} has no folders; make one for each class, with its images", root.string());
  return std::make_shared<FolderDataset>(std::move(classes), std::move(files), std::move(options));
}

}  // namespace levin::data
