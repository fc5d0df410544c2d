#pragma once
// Explanation: what a part of levin knows about an exception that is not levin's, such as a size error
// of LibTorch. It stands before it where nobody catches that and the program ends.
//
//   const detail::Explanation why([&](std::string_view what) {
//     return is_divided() && is_size_error(what) ? text_of_error() : "";
//   });

#include <functional>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::detail {

/// It counts as long as it lives. text: is given what the exception says, without frames, and returns
/// what() of an Error, or "" where it knows nothing. It is called where the exception was thrown: the
/// objects that lived there may still live.
class LEVIN_API Explanation {
 public:
  using Text = std::function<std::string(std::string_view what)>;

  explicit Explanation(Text text);
  ~Explanation();
  Explanation(const Explanation&) = delete;
  Explanation& operator=(const Explanation&) = delete;

  std::string text(std::string_view what) const { return text_(what); }

 private:
  Text text_;
};

}  // namespace levin::detail
