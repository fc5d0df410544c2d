// A file of torch.save before PyTorch 1.6 (or with _use_new_zipfile_serialization = false): pickles one
// after the other, of a number, a version, the machine, what was saved, and the names of its storages;
// then of each storage how many elements it has, and these.
#include <array>
#include <cstring>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;

/// The number 0x1950a86a20f9469cfc6c and the pickle's end.
constexpr std::array<uint8_t, 13> kMagic = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                            0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
constexpr int64_t kVersion = 1001;

/// Returns the end of the magic number; 0: there is none. It follows the protocol, and from
/// protocol 4 on a frame's length.
size_t end_of_magic(std::span<const std::byte> bytes) {
  for (const size_t begin : {size_t{2}, size_t{11}}) {
    if (bytes.size() < begin + kMagic.size() || bytes[0] != std::byte{0x80}) continue;
    if (std::memcmp(bytes.data() + begin, kMagic.data(), kMagic.size()) == 0) {
      return begin + kMagic.size();
    }
  }
  return 0;
}

/// Bytes of an element of a storage's class, of those too whose tensors are left out; 0: unknown.
size_t width_of(std::string_view name) {
  if (const auto type = type_of_storage(name)) return at::elementSize(*type);
  if (name == "torch QInt32Storage") return 4;
  for (const char* narrow : {"torch QInt8Storage", "torch QUInt8Storage", "torch QUInt4x2Storage",
                             "torch QUInt2x4Storage"}) {
    if (name == narrow) return 1;
  }
  return 0;
}

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& source)
      : bytes_(bytes), source_(source), at_(end_of_magic(bytes)) {}

  LegacyTorchFile read() {
    const auto version = pickle();
    if (version->top().integer != kVersion) fail("its version is not supported");
    const auto machine = pickle();
    const PickleValue* is_little = machine->top().find("little_endian");
    if (is_little != nullptr && !is_little->boolean) {
      fail("it was written on a machine of another byte order");
    }
    LegacyTorchFile file;
    file.pickle = pickle();
    const auto widths = widths_of(*file.pickle);
    const auto names = pickle();
    for (const PickleValue* name : names->top().items) {
      const auto width = widths.find(name->text);
      if (width == widths.end())
        fail(fmt::format("it has a storage {} without a tensor", name->text));
      file.storages[name->text] = storage(width->second);
    }
    return file;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    LEVIN_FAIL("checkpoint.torch", "{} cannot be read: {}", source_, printable(what));
  }

  std::unique_ptr<Pickle> pickle() {
    auto read = std::make_unique<Pickle>(bytes_.subspan(at_), source_);
    at_ += read->size();
    return read;
  }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends too early, within a storage");
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }

  std::span<const std::byte> storage(size_t width) {
    int64_t count = 0;
    std::memcpy(&count, take(sizeof count).data(), sizeof count);
    uint64_t size = 0;
    if (count < 0 || __builtin_mul_overflow(static_cast<uint64_t>(count), width, &size)) {
      fail("it has a storage without a size");
    }
    return take(size);
  }

  /// Bytes of an element of each storage: ("storage", class, name, device, count, view).
  std::map<std::string_view, size_t> widths_of(const Pickle& pickle) const {
    std::map<std::string_view, size_t> widths;
    for (const PickleValue& value : pickle.values()) {
      if (!value.is(Kind::kPersistent) || value.of->items.size() < 5) continue;
      const auto& parts = value.of->items;
      if (parts[0]->text != "storage") continue;
      if (parts.size() > 5 && !parts[5]->is(Kind::kNone)) {
        fail("it has a storage that is a view of another, as PyTorch before 0.4 wrote them");
      }
      const size_t width = width_of(parts[1]->text);
      if (width == 0) fail(fmt::format("it has a storage of class {}", parts[1]->text));
      widths[parts[2]->text] = width;
    }
    return widths;
  }

  std::span<const std::byte> bytes_;
  const std::string& source_;
  size_t at_;
};

}  // namespace

bool is_legacy_torch_file(std::span<const std::byte> bytes) { return end_of_magic(bytes) > 0; }

LegacyTorchFile read_legacy_torch_file(std::span<const std::byte> bytes,
                                       const std::string& source) {
  return Reader(bytes, source).read();
}

}  // namespace levin::detail
