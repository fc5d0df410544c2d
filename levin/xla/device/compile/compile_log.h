#pragma once
// CompileLog: what was compiled and why, for people. Memo tells it of each program, and Recording
// which operators are the optimizer's.

#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/xla/device/runtime.h"
#include "levin/xla/stablehlo/program.h"

namespace levin::xla {

class CompileLog {
 public:
  explicit CompileLog(RuntimeReport& report) : report_(report) {}

  void note(const Program& program, const graph::Graph& graph, double seconds, bool from_disk);
  /// "5210 operators, 4100 of them the optimizer's (...)".
  std::string words_of(const Program& program, const graph::Graph& graph) const;
  /// A program was compiled after next to no runs of the one before, and the last was not run often.
  bool is_busy() const;

  std::unordered_set<const graph::Node*> optimizer_nodes;  ///< nodes of the recording
  bool in_optimizer = false;                               ///< an OptimizerScope is there
  bool optimizer_is_fused = true;                          ///< as the last OptimizerScope said

 private:
  /// The parts that a program was made of, to say what is other in the next.
  struct Compiled {
    std::vector<std::string> inputs = {};
    std::vector<std::string> lines = {};  ///< one of each node of its graph
    int64_t num_operators = 0;
  };
  static std::string difference(const Compiled& before, const Compiled& now);
  const Compiled& most_alike(const Compiled& now) const;

  RuntimeReport& report_;
  std::deque<Compiled> last_;
  int64_t compiled_at_ = 0;   ///< number of executions at the last compilation
  int64_t num_in_a_row_ = 0;  ///< compilations with next to no executions between them
};

/// The inputs of the program, "input0 f32[32, 784]".
std::vector<std::string> inputs_of(const Program& program);

}  // namespace levin::xla
