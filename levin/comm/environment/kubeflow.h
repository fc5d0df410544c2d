#pragma once
// Kubeflow's contract with a pod: exit codes, and a master whose name appears some time after it.

#include <chrono>
#include <string>

#include "levin/base/export.h"

namespace levin::comm {

/// Under restartPolicy ExitCode Kubeflow starts a pod again for a code of 128 or more and gives up
/// for one below. 138 is the code it keeps for programs that ask for a retry.
inline constexpr int kRetryExitCode = 138;

/// Returns whether this process runs in a Kubernetes pod.
LEVIN_API bool in_kubernetes();

/// A pod's DNS name resolves only once it runs. Looks the name up until it resolves, saying what it
/// waits for. Throws Error "comm.environment.name" when it still does not after timeout.
LEVIN_API void wait_for_name(const std::string& host, std::chrono::milliseconds timeout);

}  // namespace levin::comm
