#pragma once
// xla_check: a training step compiled for many XLA devices, that need not be there: what it holds
// in the memory of each, what it computes, what the devices exchange. What `levin xla check`
// prints.
//
//   const pjrt::Topology pod(libtpu, "v5e:2x4");
//   const CheckedStep checked = check_step(step.graph(), pod);
//   std::cout << to_text(checks, plan);

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/xla/pjrt/topology.h"
#include "tools/collectives.h"
#include "tools/graph/plan_report.h"

namespace levin::tools {

struct CheckedStep {
  std::string topology;
  std::string device_kind;
  int64_t num_cores = 1;
  double hbm_bytes = 0.0;  ///< of a core; 0: not known
  std::string refusal;     ///< why the compiler gave none; the rest is then empty
  xla::pjrt::ProgramMemory memory = {};
  double flops = 0.0;
  double bytes = 0.0;    ///< read and written
  double seconds = 0.0;  ///< what its rates allow at best; 0: not known
  std::vector<Collective> collectives = {};
  double compile_s = 0.0;

  /// Bytes on a core while a step runs: arguments, results that have no place in one, temporaries
  /// and the program.
  int64_t total_bytes() const;
  bool fits() const;
};

/// The step as each of so many devices runs it, which has a batch of its own of the recorded size,
/// as in `--strategy xla` a loader's batch size is a device's: gradients are averaged over the
/// devices. The step was recorded on the CPU. Throws Error "tools.xla" for one that keeps no
/// gradients, and what graph::insert_gradient_all_reduces throws: among it for a step of several
/// updates, one made from what another has updated, as a GAN's is.
graph::Graph replica_of(const graph::Graph& step, int64_t num_devices);

using CompileStep =
    std::function<xla::pjrt::Program(std::string_view, const xla::pjrt::CompileOptions&)>;

/// Fills in what the compiled program tells. Throws what lower() and the compiler throw, but for
/// "xla.memory", which is a refusal.
void check_step(const graph::Graph& step, const CompileStep& compile, CheckedStep& checked);
CheckedStep check_step(const graph::Graph& step, const xla::pjrt::Topology& topology);

/// A column for each; the plan's largest tensors where one does not fit.
std::string to_text(std::span<const CheckedStep> checks, const Plan& plan);
std::string to_json(std::span<const CheckedStep> checks, const Plan& plan);

}  // namespace levin::tools
