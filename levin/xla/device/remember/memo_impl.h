#pragma once
// Memo: the runtime's memory of its own work, so that it does nothing twice. It lowers and compiles
// a graph that is not known.
//
// Each of these memories saves what the ones below it cost, and none can answer for another:
//
//   memory           key                          answer                    lives
//   Recordings       inputs' types, flags and     the runner of a whole     as its Compiled (this is
//   (graph/compile)  names, guards                step: no operator is      graph's, and before the
//                                                 called                    device; it holds a program)
//   CallTree         the calls of a recording in  types of the results; at  as the runtime; emptied
//                    their order, tensors by      the end the executable    when full
//                    where they lie               and what it takes
//   Inferred         one call, by its arguments'  types of the results      as the runtime; emptied
//                    geometry                                               when full
//   ProgramTable     a graph, to the word         program and executable    64, the last used
//   executables_     a program's text             executable                as the runtime
//   ExecutableCache  text, options, plugin,       executable, from disk     over processes, 2 GiB
//                    machine
//
// CallTree has no answer for a call that comes at another place, or within a step, which records a
// graph each time: Inferred has. Different calls give equal graphs once dead code is gone, and a
// step's graph is made without CallTree: ProgramTable knows them. Different graphs give equal texts
// (names, numbers that a program takes anew), and the runners of steps hold executables that
// ProgramTable may have dropped: executables_ keeps them. The disk costs a read and a load, which
// ends in executables_.

#include <string>
#include <unordered_map>

#include "levin/xla/device/compile/compile_log.h"
#include "levin/xla/device/remember/call_tree.h"
#include "levin/xla/device/run/devices_impl.h"
#include "levin/xla/device/shapes/inferred.h"
#include "levin/xla/pjrt/executable_cache.h"
#include "levin/xla/stablehlo/program_table.h"

namespace levin::xla {

struct RuntimeImpl;

class Memo {
 public:
  /// A compilation keeps the owner until it is done.
  Memo(RuntimeImpl& owner, const std::string& cache_dir, Devices& devices, RuntimeReport& report);

  /// A graph that is like one before has its program. Valid until the next call.
  const KnownProgram& program_of(const graph::Graph& graph, const SplitDim& split_dim);
  Program lowered(const graph::Graph& graph, const SplitDim& split_dim);
  const pjrt::Executable& executable_of(const Program& program, const graph::Graph& graph);

  CallTree calls;
  Inferred inferred;
  CompileLog log;
  /// Runtime::set_stop_signal.
  int (*stop_signal)() = nullptr;

 private:
  RuntimeImpl& owner_;
  Devices& devices_;
  RuntimeReport& report_;
  ProgramTable programs_;
  std::unordered_map<std::string, pjrt::Executable> executables_;
  pjrt::ExecutableCache cache_;
};

}  // namespace levin::xla
