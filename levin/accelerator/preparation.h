#pragma once
// Preparation: how processes wait for one of them that downloads or converts data, which may take
// far longer than any exchange between them.

#include <functional>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"

namespace levin::detail {

/// Runs body where `does` says so and returns when all processes of the group have come here. Those
/// that wait say so each minute, on rank 0. Every rank calls it equally often. Throws what body
/// throws, there; Error "accelerator.prepare" on the others then, and after timeout_s.
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
