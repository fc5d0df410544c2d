#pragma once
// TextMemory: a place where texts stay as long as it does. Not for users.

#include <cstring>
#include <memory_resource>
#include <string_view>

namespace levin::text {

class TextMemory {
 public:
  std::string_view keep(std::string_view text) {
    if (text.empty()) return {};
    auto* const bytes = static_cast<char*>(memory_.allocate(text.size(), 1));
    std::memcpy(bytes, text.data(), text.size());
    return {bytes, text.size()};
  }

 private:
  std::pmr::monotonic_buffer_resource memory_;
};

}  // namespace levin::text
