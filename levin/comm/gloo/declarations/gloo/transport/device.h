#pragma once
// The parts of gloo's transport that ProcessGroupGloo.hpp needs: it holds pointers.

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
