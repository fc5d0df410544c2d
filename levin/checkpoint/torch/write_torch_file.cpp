#include "levin/checkpoint/torch/write_torch_file.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "levin/checkpoint/torch/dtypes_impl.h"
#include "levin/checkpoint/torch/pickle_writer.h"
#include "levin/checkpoint/torch/stored_tensors.h"
#include "levin/checkpoint/torch/zip_writer.h"

namespace levin::detail {
namespace {

/// Returns whether Python makes the tensor by _rebuild_tensor_v3, from bytes and a dtype: for dtypes of which it
/// has no class of storages, and where tensors of several dtypes share one.
bool is_untyped(const TorchDtype& dtype, const StoredMemory& memory) {
  return memory.is_mixed || dtype.storage.empty();
}

/// torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks), v3 with a dtype.
void add_tensor(PickleWriter& pickle, const StoredTensor& tensor, const StoredMemory& memory) {
  const TorchDtype& dtype = *std::ranges::find(kTorchDtypes, tensor.dtype, &TorchDtype::type);
  const bool untyped = is_untyped(dtype, memory);
  const auto width = static_cast<int64_t>(untyped ? 1 : at::elementSize(tensor.dtype));
  pickle.global("torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2").mark();
  pickle.mark().text("storage");
  pickle.global(untyped ? "torch.storage" : "torch", untyped ? "UntypedStorage" : dtype.storage);
  pickle.text(std::to_string(tensor.memory)).text("cpu").integer(memory.bytes / width).tuple();
  pickle.persistent().integer(tensor.offset).integers(tensor.sizes).integers(tensor.strides);
  pickle.boolean(false).global("collections", "OrderedDict").empty_tuple().call();
  if (untyped) pickle.global("torch", dtype.python);
  pickle.tuple().call();
}

std::string pickled(const StoredTensors& stored) {
  PickleWriter pickle;
  pickle.global("collections", "OrderedDict").empty_tuple().call().mark();
  for (const StoredTensor& tensor : stored.tensors) {
    pickle.text(tensor.name);
    add_tensor(pickle, tensor, stored.memory[tensor.memory]);
  }
  pickle.entries();
  return std::move(pickle).end();
}

/// The records of torch.save, in its order.
void add_records(ZipWriter& zip, std::string_view pickle, const StoredTensors& stored) {
  zip.add("data.pkl", pickle);
  zip.add(".format_version", "1");
  zip.add(".storage_alignment", std::to_string(ZipWriter::kAlignment));
  zip.add("byteorder", "little");
  for (size_t i = 0; i < stored.memory.size(); ++i) {
    const at::Tensor bytes = bytes_of(stored.memory[i]);
    zip.add("data/" + std::to_string(i),
            std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  zip.finish();
}

}  // namespace

files::FileDigest write_torch_file(const std::filesystem::path& path, const State& tensors) {
  const StoredTensors stored = stored_tensors(tensors);
  files::FileWriter file(path);
  ZipWriter zip([&](std::span<const std::byte> bytes) { file.write(bytes); });
  add_records(zip, pickled(stored), stored);
  return file.close();
}

std::string torch_file_of_arguments(const std::vector<at::Tensor>& arguments) {
  State named;
  for (size_t i = 0; i < arguments.size(); ++i) named.set(std::to_string(i), arguments[i]);
  const StoredTensors stored = stored_tensors(named);
  PickleWriter pickle;
  pickle.mark().mark();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto own = std::ranges::find(stored.tensors, std::to_string(i), &StoredTensor::name);
    add_tensor(pickle, *own, stored.memory[own->memory]);
  }
  pickle.tuple().empty_dict().tuple();
  std::string bytes;
  ZipWriter zip([&](std::span<const std::byte> more) {
    bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
  });
  add_records(zip, std::move(pickle).end(), stored);
  return bytes;
}

}  // namespace levin::detail
