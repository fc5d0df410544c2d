#pragma once
// The gloo backend: collectives over TCP between any hosts, as LibTorch brings it.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "levin/base/export.h"

namespace levin::comm {

/// Over the network interface of that host name or address; "" takes the one that this machine's
/// own name resolves to, and the loopback where it resolves to none. Throws "comm.gloo" when the
/// ranks do not connect before the timeout.
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_gloo_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
    std::chrono::milliseconds timeout, const std::string& host = "");

}  // namespace levin::comm
