#include "levin/comm/options.h"

namespace levin {

void CommOptions::fields(FieldVisitor& field) {
  field("backend", backend,
        "communication backend: auto, shm, gloo, mpi, hierarchical or hierarchical-mpi");
  field("comm_timeout_s", timeout_s,
        "timeout of collectives and other waits for processes, seconds");
  field("comm_connect_timeout_s", connect_timeout_s,
        "timeout for all processes to connect at the start, seconds");
  field("comm_prepare_timeout_s", prepare_timeout_s,
        "timeout for processes that prepare data (prepare_data), seconds");
  field("comm_check", check,
        "before each collective between GPUs, check that all ranks make the same call; between "
        "CPUs this is always checked");
}

}  // namespace levin
