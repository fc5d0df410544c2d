#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "levin/base/check.h"
#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {
namespace {

constexpr int64_t kCifarPixels = 3 * 32 * 32;
constexpr int64_t kCifarRecord = 1 + kCifarPixels;  // the label, then red, green and blue
constexpr int64_t kCifarRecords = 10'000;           // of a file

std::filesystem::path cifar_file(const std::filesystem::path& root, const std::string& name) {
  for (const auto& folder : {root, root / "cifar-10-batches-bin"}) {
    if (std::filesystem::exists(folder / name)) return folder / name;
  }
  LEVIN_FAIL("data.cifar.missing",
             "no {} in {} or its folder cifar-10-batches-bin; unpack cifar-10-binary.tar.gz there",
             name, root.string());
}

}  // namespace

Batch read_cifar10(const std::filesystem::path& root, CifarOptions options) {
  std::vector<std::string> names = {"test_batch.bin"};
  if (options.train) {
    names.clear();
    for (int number = 1; number <= 5; ++number) {
      names.push_back("data_batch_" + std::to_string(number) + ".bin");
    }
  }
  const int64_t size = kCifarRecords * std::ssize(names);
  at::Tensor images = at::empty({size, 3, 32, 32}, at::kByte);
  at::Tensor labels = at::empty({size}, at::kLong);
  uint8_t* image = images.mutable_data_ptr<uint8_t>();
  int64_t* label = labels.mutable_data_ptr<int64_t>();
  for (const std::string& name : names) {
    const std::filesystem::path path = cifar_file(root, name);
    const files::MemoryMap map(path);
    LEVIN_CHECK(std::ssize(map.bytes()) == kCifarRecords * kCifarRecord, "data.cifar.size",
                "{} has {} bytes, wanted {}; download the binary version of CIFAR-10 again",
                path.string(), map.bytes().size(), kCifarRecords * kCifarRecord);
    for (int64_t i = 0; i < kCifarRecords; ++i, image += kCifarPixels, ++label) {
      const std::byte* record = map.bytes().data() + i * kCifarRecord;
      *label = static_cast<int64_t>(record[0]);
      LEVIN_CHECK(*label < 10, "data.cifar.label",
                  "image {} of {} has the label {}, wanted 0 to 9; download the file again", i,
                  path.string(), *label);
      std::memcpy(image, record + 1, kCifarPixels);
    }
  }
  return {{"image", images}, {"label", labels}};
}

}  // namespace levin::data
