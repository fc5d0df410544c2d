#pragma once
// The parts of gloo::Context that ProcessGroupGloo.hpp needs: it holds pointers to one.

#include <chrono>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
