#include "levin/comm/options.h"

namespace levin {

void CommOptions::fields(FieldVisitor& field) {
  field("backend", backend,
        "what carries bytes between processes: auto, shm, gloo, mpi, hierarchical or "
        "hierarchical-mpi");
  field("comm_timeout_s", timeout_s, "longest wait for other processes, seconds");
  field("comm_connect_timeout_s", connect_timeout_s,
        "longest wait for all processes to come at the start, seconds");
  field("comm_prepare_timeout_s", prepare_timeout_s,
        "longest wait for a process that prepares data (prepare_data), seconds");
  field("comm_check", check,
        "compare each exchange between GPUs over the processes first, as it is between CPUs");
}

}  // namespace levin
