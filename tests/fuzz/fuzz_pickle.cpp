// libFuzzer: any pickle, as that of a file of torch.save and as the .metadata of a folder of
// torch.distributed.checkpoint, gives a state whose tensors can be read, or throws levin::Error.
//
//   fuzz_pickle -max_total_time=20

#include <caffe2/serialize/inline_container.h>
#include <stdlib.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "levin/base/error.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/memory_file.h"

namespace {

namespace fs = std::filesystem;

/// An archive with that pickle, of six floats in storage "0" and as many integers in "1".
std::string archive_of(std::string_view pickle) {
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  const std::array<float, 6> floats = {0, 1, 2, 3, 4, 5};
  const std::array<int64_t, 6> integers = {0, 1, 2, 3, 4, 5};
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("data/0", floats.data(), sizeof floats);
  writer.writeRecord("data/1", integers.data(), sizeof integers);
  writer.writeEndOfFile();
  return bytes;
}

/// A folder whose .metadata may be anything, beside one part of a tensor [2, 3].
struct Folder {
  fs::path path;

  Folder() {
    std::string name = (fs::temp_directory_path() / "fuzz_pickle_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
    using namespace std::string_view_literals;
    std::string part = archive_of(
        "\x80\x02"
        "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        "X\x01\0\0\0"
        "0X\x03\0\0\0cpuK\x06tQK\x00K\x02K\x03\x86K\x03K\x01\x86\x89NtR."sv);
    part.resize(8192);  // of which the seeds speak; a zip is found at its end
    std::ofstream(path / "__0_0.distcp", std::ios::binary) << part;
  }
  ~Folder() { fs::remove_all(path); }
};

/// Every value is there.
void read(const levin::State& state) {
  for (const auto& [name, value] : state.values()) {
    if (const auto* child = std::get_if<levin::State>(&value)) read(*child);
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor == nullptr) continue;
    // A view may be larger than any memory; each of its elements lies in the storage all the same.
    if (tensor->numel() == 0) continue;
    at::Tensor last = *tensor;
    while (last.dim() > 0) last = last.select(0, last.size(0) - 1);
    volatile char byte = 0;
    const auto* bytes = static_cast<const char*>(last.const_data_ptr());
    for (int64_t i = 0; i < last.element_size(); ++i) byte = bytes[i];
    (void)byte;
  }
}

template <class Load>
void check(const Load& load) {
  try {
    read(load());
  } catch (const levin::Error& error) {
    if (!error.id().starts_with("checkpoint.") && !error.id().starts_with("files.")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Limits limits(size);
  const std::string_view pickle(reinterpret_cast<const char*>(data), size);
  const std::string archive = archive_of(pickle);
  const MemoryFile file(reinterpret_cast<const uint8_t*>(archive.data()), archive.size());
  check([&] { return levin::load_torch_file(file.path()); });
  check([&] { return levin::load_torch_weights(file.path()); });
  static const Folder folder;
  std::ofstream(folder.path / ".metadata", std::ios::binary) << pickle;
  check([&] { return levin::load_distributed_checkpoint(folder.path); });
  return 0;
}
