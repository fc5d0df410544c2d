// Image files: pixels are those that Pillow reads (images.py).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <sstream>

#include "levin/data/sources/sources.h"
#include "levin/files/safetensors.h"
#include "tests/oracle/python.h"

namespace images_of_python {
namespace {

/// Largest difference of two uint8 images; 255 for other shapes.
int64_t difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != at::kByte) return 255;
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int64_t>();
}

/// {height, width} of "HEIGHTxWIDTH".
std::vector<int64_t> size_of(const std::string& text) {
  const size_t at = text.find('x');
  if (at == std::string::npos) return {std::stoll(text)};
  return {std::stoll(text.substr(0, at)), std::stoll(text.substr(at + 1))};
}

class ImagesOfPython : public levin::test::PythonTest {};

TEST_F(ImagesOfPython, HaveThePixelsOfPillow) {
  std::string output;
  ASSERT_EQ(run("images.py", "'" + file("").string() + "'", &output), 0) << output;
  const levin::files::SafetensorsFile pixels(file("pixels.safetensors"));
  int64_t num_png = 0, num_jpeg = 0, num_sizes = 0;
  for (const levin::files::TensorEntry& entry : pixels.entries()) {
    const std::string& key = entry.name;
    const at::Tensor value = at::from_blob(const_cast<std::byte*>(entry.data.data()), entry.shape,
                                           at::TensorOptions(at::kByte));
    std::vector<std::string> parts;
    std::istringstream words(key);
    for (std::string part; std::getline(words, part, '/');) parts.push_back(part);
    levin::data::ImageOptions options;
    std::string name = parts.front();
    int64_t tolerance = 0;
    if (parts.size() == 3) {
      name = parts[2];
      (parts[0] == "cropped" ? options.center_crop : options.resize) = size_of(parts[1]);
      tolerance = parts[0] == "cropped" ? 0 : 1;
      ++num_sizes;
    } else {
      options.gray = parts[1] == "gray";
      const bool is_png = name.ends_with(".png");
      // Pillow brings a libjpeg-turbo of its own.
      tolerance = is_png ? 0 : 1;
      ++(is_png ? num_png : num_jpeg);
    }
    EXPECT_LE(difference(levin::data::read_image(file(name), options), value), tolerance) << key;
  }
  EXPECT_EQ(num_png, 150);
  EXPECT_EQ(num_jpeg, 210);
  EXPECT_EQ(num_sizes, 21);
}

}  // namespace
}  // namespace images_of_python
