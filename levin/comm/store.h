#pragma once
// The store of a run: where its ranks find each other before they can talk.
//
//   const auto store = comm::connect_store(comm::read_environment(), std::chrono::minutes(5));

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/comm/environment/environment.h"

namespace levin::comm {

/// A c10d::TCPStore at the environment's master address, served by the launcher or else by rank 0,
/// which listens on 127.0.0.1 alone where that is the address; a FileStore where it is
/// file:///path (of a file that is new in each run); a c10d::HashStore for one process. Under keys
/// of this start of the run alone, which hold the environment's token. Throws
/// "comm.environment.port" on rank 0 when the port is taken, "comm.store" on the others when nobody
/// answers before the timeout or what answers is no store, "comm.environment.name" where the
/// address does not resolve in that time.
LEVIN_API c10::intrusive_ptr<c10d::Store> connect_store(const Environment& environment,
                                                        std::chrono::milliseconds timeout);

/// A client of the TCPStore there. what_to_check tells the user where the address comes from,
/// "--rdzv-endpoint". Throws "comm.store".
LEVIN_API c10::intrusive_ptr<c10d::Store> connect_tcp_store(const std::string& host, int64_t port,
                                                            std::chrono::milliseconds timeout,
                                                            std::string_view what_to_check);

}  // namespace levin::comm
