#include "levin/checkpoint/torch/write_torch_file.h"

#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "levin/base/check.h"
#include "levin/checkpoint/torch/dtypes_impl.h"
#include "levin/checkpoint/torch/pickle_writer.h"
#include "levin/checkpoint/torch/stored_tensors.h"

namespace levin::detail {
namespace {

constexpr uint64_t kAlignment = 64;  // as torch.save's, which it says in .storage_alignment

/// Whether Python makes the tensor by _rebuild_tensor_v3, from bytes and a dtype: for dtypes of which it
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

/// LibTorch's writer of zip files over levin's writer of files.
class Archive {
 public:
  explicit Archive(const std::filesystem::path& path)
      : file_(path),
        zip_([this](const void* bytes, size_t count) { return write(bytes, count); },
             /*compute_crc32=*/true, kAlignment) {}
  ~Archive() {
    // LibTorch's destructor would end the archive, and what that throws would end the program.
    try {
      if (!zip_.finalized()) zip_.writeEndOfFile();
    } catch (...) {  // NOLINT(bugprone-empty-catch): whoever gave it up knows why
    }
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  void add(const std::string& name, std::string_view text) {
    add(name, std::as_bytes(std::span(text.data(), text.size())));
  }
  void add(const std::string& name, std::span<const std::byte> bytes) {
    try {
      zip_.writeRecord(name, bytes.data(), bytes.size());
    } catch (const c10::Error&) {
      give_up();
    }
  }

  files::FileDigest close() {
    try {
      zip_.writeEndOfFile();
    } catch (const c10::Error&) {
      give_up();
    }
    return file_.close();
  }

 private:
  // LibTorch's code in C is between this and whoever called: what went wrong is thrown by give_up.
  size_t write(const void* bytes, size_t count) noexcept {
    if (failure_) return 0;
    try {
      file_.write(std::span(static_cast<const std::byte*>(bytes), count));
      return count;
    } catch (...) {
      failure_ = std::current_exception();
      return 0;
    }
  }

  [[noreturn]] void give_up() {
    if (failure_) std::rethrow_exception(failure_);
    throw;
  }

  files::FileWriter file_;
  std::exception_ptr failure_;
  caffe2::serialize::PyTorchStreamWriter zip_;
};

}  // namespace

// The records of torch.save, in its order.
files::FileDigest write_torch_file(const std::filesystem::path& file, const State& tensors) {
  const StoredTensors stored = stored_tensors(tensors);
  Archive archive(file);
  archive.add("data.pkl", pickled(stored));
  archive.add(".format_version", "1");
  archive.add(".storage_alignment", std::to_string(kAlignment));
  archive.add("byteorder", "little");
  for (size_t i = 0; i < stored.memory.size(); ++i) {
    const at::Tensor bytes = bytes_of(stored.memory[i]);
    archive.add("data/" + std::to_string(i),
                std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  return archive.close();
}

}  // namespace levin::detail
