// State in a scratch file.

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "levin/optim/offload/state_memory.h"

namespace levin::optim {
namespace {

constexpr int64_t kCopiedAtOnce = int64_t{16} << 20;  // bytes

class FileMemory final : public StateMemory {
 public:
  FileMemory(std::shared_ptr<files::ScratchFile> file, int64_t memory_bytes)
      : file_(std::move(file)), swapper_(file_, memory_bytes) {}

  at::Device device() const override { return at::kCPU; }
  int64_t memory_bytes() const override { return swapper_.memory_bytes(); }
  int64_t size() const override { return file_->size(); }
  int64_t take(int64_t bytes) override { return file_->take(bytes); }
  at::Tensor at_rest(const SlotPlace& place) const override {
    return file_->tensor(place.begin, place.sizes, place.strides, place.type);
  }
  void read_ahead(const files::ByteRanges& ranges) override { swapper_.read_ahead(ranges); }
  std::unique_ptr<Lease> lease(const files::ByteRanges& ranges) override {
    return std::make_unique<FileLease>(swapper_.lease(ranges));
  }
  void forget() override { swapper_.forget(); }
  void wait() override { swapper_.wait(); }
  std::shared_ptr<files::ScratchFile> file() const override { return file_; }

 protected:
  /// The file is written past the memory of the process.
  void write(const SlotPlace& place, const Write& write) override {
    const at::Tensor all = at_rest(place);
    const bool has_rows = all.dim() > 0 && all.numel() > 0 && all.is_contiguous();
    const int64_t rows = has_rows ? all.size(0) : 1;
    const int64_t row_bytes = std::max<int64_t>(place.bytes() / rows, 1);
    const int64_t at_once = std::max<int64_t>(kCopiedAtOnce / row_bytes, 1);
    for (int64_t row = 0; row < rows; row += at_once) {
      const int64_t count = std::min(at_once, rows - row);
      const int64_t begin = place.begin + (has_rows ? row * row_bytes : 0);
      const int64_t bytes = has_rows ? count * row_bytes : place.bytes();
      file_->populate(begin, bytes, /*to_write=*/true);
      write(has_rows ? all.narrow(0, row, count) : all, [&](const at::Tensor& other) {
        return has_rows ? other.narrow(0, row, count) : other;
      });
      file_->drop(begin, bytes);
    }
  }

 private:
  class FileLease final : public Lease {
   public:
    explicit FileLease(files::Swapper::Lease lease) : lease_(std::move(lease)) {}
    at::Tensor bytes(size_t range) const override {
      const std::span<std::byte> bytes = lease_.bytes(range);
      return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())},
                           at::TensorOptions(at::kByte));
    }
    void write_back() override { lease_.write_back(); }

   private:
    files::Swapper::Lease lease_;
  };

  std::shared_ptr<files::ScratchFile> file_;
  files::Swapper swapper_;
};

}  // namespace

StateMemory::Lease::~Lease() = default;
StateMemory::~StateMemory() = default;

void StateMemory::copy_into(const SlotPlace& place, const at::Tensor& values) {
  write(place, [&](const at::Tensor& part, const auto& same) { part.copy_(same(values)); });
}

void StateMemory::fill(const SlotPlace& place, double value) {
  write(place, [&](const at::Tensor& part, const auto&) { part.fill_(value); });
}

std::shared_ptr<StateMemory> make_file_memory(std::shared_ptr<files::ScratchFile> file,
                                              int64_t memory_bytes) {
  return std::make_shared<FileMemory>(std::move(file), memory_bytes);
}

}  // namespace levin::optim
