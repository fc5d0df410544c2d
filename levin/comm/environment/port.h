#pragma once
// Ports: one that all processes of a job derive alike, and one that this process listens on.
// The store of a run is served on it; a launcher takes a free one, so that restarts never race.
//
//   const ListeningSocket socket = listen_on(0);      // any free port
//   serve(socket.port(), socket.descriptor());

#include <cstdint>
#include <string_view>
#include <utility>

#include "levin/base/export.h"

namespace levin::comm {

/// Returns a port from 10000 to 29999, below the ports that Linux gives to outgoing connections;
/// the same for the same text in every process.
LEVIN_API int64_t derived_port(std::string_view job);

/// Who can reach a socket: this host alone, by 127.0.0.1, or every host with a route to it.
enum class Reach { kLoopback, kNetwork };

/// Owns a TCP socket that listens.
class LEVIN_API ListeningSocket {
 public:
  ListeningSocket(int descriptor, int64_t port) : descriptor_(descriptor), port_(port) {}
  ~ListeningSocket();
  ListeningSocket(ListeningSocket&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}
  ListeningSocket& operator=(ListeningSocket&&) = delete;

  int64_t port() const { return port_; }
  int descriptor() const { return descriptor_; }
  /// Hands the descriptor to an owner who closes it.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
  int64_t port_;
};

/// Port 0 takes a free one. Throws Error "comm.environment.port" when the port is taken or not
/// permitted; how_to_choose tells the user what to set, "--master-port" or "MASTER_PORT".
LEVIN_API ListeningSocket listen_on(int64_t port, std::string_view how_to_choose,
                                    Reach reach = Reach::kNetwork);

}  // namespace levin::comm
