#pragma once
// Backends by name: what can carry the bytes of a group.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::comm {

struct BackendPlan {
  c10::intrusive_ptr<c10d::Store> store;  ///< the store of this group alone
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> global_ranks = {};
  std::chrono::milliseconds timeout = {};
  std::string own_address = {};  ///< address at which the other ranks reach this one; "": not known
};

/// Returns the backend that "auto" stands for, the same on every rank. Throws Error "comm.backend",
/// and "comm.connect" when a rank does not come.
LEVIN_API std::string choose_backend(c10d::Store& store, int64_t rank, int64_t size,
                                     const ProcessGroupOptions& options);

/// Returns an address of this rank's host that all ranks reach. Every rank calls it. Throws Error
/// "comm.connect".
LEVIN_API std::string choose_address(c10d::Store& store, int64_t rank, int64_t size,
                                     const std::string& master_address);

/// Throws Error "comm.backend" for an unknown name; auto is allowed.
LEVIN_API void check_backend_name(const std::string& name);

/// Makes the backend of that name. Throws Error "comm.backend" for an unknown one.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendPlan& plan);

}  // namespace levin::comm
