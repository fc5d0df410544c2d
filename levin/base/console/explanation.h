#pragma once
// Explanation: what a part of levin knows about an exception that is not levin's, such as a size error
// of LibTorch. It stands before it where nobody catches that and the program ends.
//
//   const detail::Explanation why([&] { return is_divided() ? text_of_error() : ""; });

#include <functional>
#include <string>

#include "levin/base/export.h"

namespace levin::detail {

/// For its time. text: gives what() of an Error, or nothing where it knows nothing. It is called where
/// the exception was thrown: what lived there may still live.
class LEVIN_API Explanation {
 public:
  explicit Explanation(std::function<std::string()> text);
  ~Explanation();
  Explanation(const Explanation&) = delete;
  Explanation& operator=(const Explanation&) = delete;

  std::string text() const { return text_(); }

 private:
  std::function<std::string()> text_;
};

}  // namespace levin::detail
