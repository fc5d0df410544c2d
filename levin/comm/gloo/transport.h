#pragma once
// Messages over TCP by gloo, as LibTorch brings it.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>

#include "levin/comm/messages/transport.h"

namespace levin::comm {

/// Sends messages between the connection's ranks. After an error it serves no more.
std::unique_ptr<Transport> make_gloo_transport(c10::intrusive_ptr<c10d::Backend> connection,
                                               std::chrono::milliseconds timeout);

}  // namespace levin::comm
