#pragma once
// The gloo backend: collectives over TCP between any hosts. gloo carries the messages, as LibTorch
// brings it; the collectives are levin's.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "levin/base/export.h"

namespace levin::comm {

/// CPU tensors of any layout and type. Sums go in rank order, and are the same bits on every rank
/// and in every run. The ranks are connected by TCP, each to each, over the network interface of
/// that host name or address; "" takes the one that this machine's own name resolves to, and the
/// loopback where it resolves to none. Throws "comm.gloo", "comm.timeout", "comm.peer", "comm.mismatch",
/// "comm.closed", "comm.reduce", "comm.rank", "comm.tensor", "comm.unsupported" (recvAnysource).
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_gloo_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
    std::chrono::milliseconds timeout, const std::string& host = "");

}  // namespace levin::comm
