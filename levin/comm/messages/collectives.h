#pragma once
// Collectives made of messages, over any transport. Sums are levin's own: in rank order, which
// neither MPI nor gloo promises, and of all types.

#include <memory>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/messages/algorithms.h"
#include "levin/comm/messages/transport.h"

namespace levin::comm {

/// Makes the collectives of the transport's ranks.
std::unique_ptr<Collectives> make_message_collectives(std::unique_ptr<Transport> transport,
                                                      Carrier carrier);

}  // namespace levin::comm
