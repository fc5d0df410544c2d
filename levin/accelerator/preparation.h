#pragma once
// Preparation: how processes wait for one of them that downloads or converts data, which may take
// far longer than any exchange between them.

#include <functional>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::detail {

/// Runs body if `does` is true, and returns when all processes of the group have come here.
/// Processes that wait say so each minute, on rank 0. Every rank calls it equally often. Throws the
/// exception of body there; Error "accelerator.prepare" on the others in that case, and after
/// timeout_s.
class LEVIN_API Preparation {
 public:
  Preparation(comm::ProcessGroup group, double timeout_s);
  void run(bool does, const std::function<void()>& body);

 private:
  comm::ProcessGroup group_;
  double timeout_s_;
  int64_t number_ = 0;
};

}  // namespace levin::detail
