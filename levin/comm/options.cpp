#include "levin/comm/options.h"

namespace levin {

void CommOptions::fields(FieldVisitor& field) {
  field("backend", backend,
        "communication backend between processes: auto, shm, gloo, mpi, hierarchical or "
        "hierarchical-mpi");
  field("comm_timeout_s", timeout_s, "seconds that a collective waits for other processes");
  field("comm_connect_timeout_s", connect_timeout_s,
        "seconds to wait at the start until all processes have connected");
  field("comm_prepare_timeout_s", prepare_timeout_s,
        "seconds to wait for the process that runs prepare_data");
  field("comm_check", check,
        "check before each GPU collective that all processes make the same call, as on CPUs");
}

}  // namespace levin
