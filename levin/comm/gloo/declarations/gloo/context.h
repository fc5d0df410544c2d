#pragma once
// What ProcessGroupGloo.hpp says of a gloo::Context: it holds pointers to one.

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
