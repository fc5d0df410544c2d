#pragma once
// The hierarchical backend: shared memory within each host, gloo between hosts. The default of CPU
// ranks on several hosts of which some have several ranks.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/comm/hierarchical/layout.h"

namespace levin::comm {

/// As make_shm_backend for what a host's ranks do, as make_gloo_backend between hosts; own_address
/// is where other hosts reach this one.
LEVIN_API c10::intrusive_ptr<c10d::Backend> make_hierarchical_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, const HostLayout& layout,
    std::chrono::milliseconds timeout, const std::string& own_address = "");

}  // namespace levin::comm
