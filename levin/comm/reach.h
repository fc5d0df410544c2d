#pragma once
// Reach: whether an address is this host's own, and whether anybody listens there.
// Asked before a store is served or connected to, for an error that says what is wrong: c10d's own
// does not.

#include <cstdint>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::comm {

LEVIN_API bool is_this_host(const std::string& host);
/// This host's own address on the way to that one, as numbers; "" where there is no way or no such
/// name. Sends nothing.
LEVIN_API std::string address_towards(const std::string& host);
/// One for each address that the host's name stands for, of IPv4 and of IPv6.
LEVIN_API std::vector<std::string> addresses_towards(const std::string& host);
/// Returns whether the address reaches this host alone.
LEVIN_API bool is_loopback(const std::string& address);
/// Waits for an answer for a second at most.
LEVIN_API bool somebody_listens(const std::string& host, int64_t port);

}  // namespace levin::comm
