#pragma once
// The bytes of a pickle, read one thing after the other.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace levin::detail {

/// Each reader throws Error "checkpoint.torch" when the bytes end too early.
class PickleBytes {
 public:
  PickleBytes(std::span<const std::byte> bytes, std::string_view source)
      : bytes_(bytes), source_(source) {}

  size_t place() const { return at_; }
  size_t size() const { return bytes_.size(); }
  /// Throws Error "checkpoint.torch" with the source and the place.
  [[noreturn]] void fail(std::string_view what) const;

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - at_) fail("it ends too early");
    const auto taken = bytes_.subspan(at_, count);
    at_ += count;
    return taken;
  }
  template <class T>
  T number() {
    T value = {};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view letters(uint64_t count) {
    const auto taken = take(count);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::string_view line();
  int64_t long_integer();  ///< the little-endian two's complement of so many bytes
  double big_endian();

 private:
  std::span<const std::byte> bytes_;
  std::string_view source_;
  uint64_t at_ = 0;
};

}  // namespace levin::detail
