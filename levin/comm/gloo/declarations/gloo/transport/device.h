#pragma once
// What ProcessGroupGloo.hpp says of gloo's transport: it holds pointers.

namespace gloo::transport {
class Device;
class UnboundBuffer;
}  // namespace gloo::transport
