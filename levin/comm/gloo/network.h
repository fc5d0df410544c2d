#pragma once
// GlooNetwork: this rank's connections to others by gloo. Each group of ranks that talk has sockets
// of its own, made when it first does: a rank opens as many as it has peers that it talks to.
//
//   GlooNetwork network(store, rank, own_address);
//   auto transport = network.connect({.members = {0, 2}, .name = "first"}, timeout);

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "levin/comm/messages/transport.h"
#include "levin/comm/roll_call.h"

namespace gloo::transport {
class Device;
}  // namespace gloo::transport

namespace levin::comm {

/// The ranks to connect, each to each, this one among them.
struct GlooPeers {
  std::vector<int64_t> members;
  std::string name;                 ///< in the store; no two groups of a network have the same
  std::function<void()> look = {};  ///< called while the others are waited for; ends it by throwing
};

/// For all threads.
class GlooNetwork {
 public:
  /// The store is of these ranks alone. host as for make_gloo_backend.
  GlooNetwork(c10::intrusive_ptr<c10d::Store> store, int64_t rank, std::string host);

  /// All of the members call it. Throws "comm.timeout" with the ranks that did not come in time,
  /// and "comm.gloo" where one came and cannot be reached.
  std::unique_ptr<Transport> connect(const GlooPeers& peers, std::chrono::milliseconds timeout);

 private:
  /// Everybody's word.
  std::vector<std::string> meet(const RollCall& call, const GlooPeers& peers,
                                std::chrono::milliseconds timeout, const std::string& word);
  /// One socket listens for all connections.
  std::shared_ptr<gloo::transport::Device> device();

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t rank_;
  std::string host_;
  std::mutex mutex_;
  std::shared_ptr<gloo::transport::Device> device_;
};

}  // namespace levin::comm
