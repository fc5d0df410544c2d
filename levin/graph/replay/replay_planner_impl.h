#pragma once
// ReplayPlanner: goes through a graph's operators in their order, gives each value its place and each
// operator its form. Its two sources: what comes in and what is left at the end (replay_plan.cpp),
// and one operator (replay_operators.cpp).

#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/interpret/in_place_impl.h"
#include "levin/graph/replay/matmul_choice_impl.h"
#include "levin/graph/replay/replay_impl.h"
#include "levin/graph/replay/replay_memory_impl.h"
#include "levin/graph/replay/results_in_place.h"

namespace levin::graph {

class ReplayPlanner {
 public:
  ReplayPlanner(const Graph& graph, std::optional<c10::Device> device, const ReplayOptions& options)
      : graph_(graph), device_(device), options_(options) {}

  ReplayProgram plan();

 private:
  void bind();
  void bind_input(const Node& node);
  void bind_state(const Node& node);
  void add(const Node& node);
  bool can_be_captured(const Node& node, const std::vector<const Value*>& used) const;
  void push(Instruction instruction);
  void release(const std::vector<const Value*>& used);
  void add_views(const Node& node, const Value& whole);
  void add_constant(const Node& node);
  void find_writes_in_place();
  PlacedTensor new_memory(const Node& node);
  PlacedTensor place_for(const Value& result);
  void add_call(const Node& node);
  torch::jit::Stack arguments_of(const Node& node, size_t first_written,
                                 std::vector<PlacedTensor>& written);
  PlacedTensor writable(const Node& node, const Value& value, const Value& result,
                        const std::vector<PlacedTensor>& before);
  bool lies_well(const Node& node, const PlacedTensor& place,
                 const std::vector<PlacedTensor>& before) const;
  bool add_copy(const Node& node, const torch::jit::Stack& arguments);
  bool add_with_number(const Node& node, torch::jit::Stack arguments);
  bool add_out_variant(const Node& node, const torch::jit::Stack& arguments);
  void choose_matmul(Instruction& call);
  void note_sent(const Node& node);
  void note_changes(const Node& node, const std::vector<PlacedTensor>& written);
  void add_allocating(const Node& node, torch::jit::Stack arguments, size_t num_results);
  void finish();
  void add_update(const Update& update);

  std::vector<at::Tensor> run(const Node& node) const;

  /// An operator that allocates its results: they lie elsewhere in each run.
  struct Adoption {
    bool is_captured = false;  ///< then they stay where they were
    size_t row = 0;
  };

  const Graph& graph_;
  std::optional<c10::Device> device_;
  const ReplayOptions& options_;
  bool is_captured_ = false;  ///< the present operator
  size_t reads_left_ = 0;     ///< by the host, of operators that are still to come
  size_t row_ = 0;            ///< number of the present run of captured operators, or of others
  std::unordered_map<size_t, Adoption> adoptions_;  ///< by the number of the memory
  ReplayProgram program_;
  ReplayMemory memory_;
  MatmulChoice matmuls_;
  InPlaceWrites in_place_;
  std::unordered_map<const Value*, ResultPlace> result_places_;
  std::unordered_map<const Value*, PlacedTensor>
      made_early_;                            ///< memory that results were put into
  std::unordered_set<const Node*> left_out_;  ///< copies of results that were computed in place
  std::unordered_map<const Value*, at::Tensor> targets_;
  std::unordered_map<const Value*, size_t> input_numbers_;
};

}  // namespace levin::graph
