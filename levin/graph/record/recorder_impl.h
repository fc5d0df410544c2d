#pragma once
// The recorder's inside.

#include <ATen/core/ivalue.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/graph/operator_info.h"
#include "levin/graph/record/alias_table_impl.h"
#include "levin/graph/record/recorder.h"

namespace levin::graph {

struct Recorder::Call {
  struct Read {
    Alias* alias = nullptr;
    size_t position = 0;  ///< in its list
    bool is_written = false;
  };

  const OperatorInfo* info = nullptr;  ///< nullptr: not to be recorded
  std::vector<Constant>* constants = nullptr;
  c10::SmallVector<Argument, 8> arguments;
  size_t position = 0;              ///< in the list that is read at present
  c10::SmallVector<Read, 8> reads;  ///< the tensors among the arguments, in their order
  c10::SmallVector<at::Tensor, 2> written;
  at::Tensor resized;
  c10::SmallVector<at::Tensor, 2> released;
  std::vector<void*> frames;

  void clear() {
    info = nullptr;
    constants = nullptr;
    arguments.clear();
    position = 0;
    reads.clear();
    written.clear();
    resized.reset();
    released.clear();
    frames.clear();
  }
};

struct Recorder::Impl {
  explicit Impl(RecorderOptions options);

  /// Notes of the recorder about one operator.
  struct Known {
    const OperatorInfo* info = nullptr;
    /// The last of each parameter: most calls pass the same.
    std::vector<Constant> constants;
  };

  // recorder.cpp
  std::unique_ptr<Call> new_call();
  Known& known(const c10::OperatorHandle& op);
  void read_arguments(Call& call, const std::vector<c10::IValue>& stack);
  Argument read_argument(Call& call, const c10::IValue& argument, bool is_written);
  static Argument constant(const Call& call, const c10::IValue& value);
  Value* read_tensor(Call& call, const at::Tensor& tensor, bool is_written);
  static bool sees_contents(const Call& call, const Alias& alias, bool is_written);
  void read_from_base(Call& call);
  void check_lists(const Call& call) const;
  bool reads_on_host(const Call& call) const;
  void resize(const at::Tensor& tensor);
  Value& append_unwritten(const Geometry& geometry);
  Values values_of(const std::vector<at::Tensor>& results);
  Graph finish(const std::vector<at::Tensor>& results);

  // recorder_results.cpp
  /// nullptr where it needs no node.
  const Node* add_call(Call& call, const std::vector<c10::IValue>& stack);
  void note_frames(Call& call, Node& node);
  void add_result(const Call& call, Value& value, const at::Tensor& tensor, size_t index);
  void add_written(Call& call, Node& node, size_t first_output);

  // recorder_aliases.cpp
  Value* current(Alias& alias);
  void write(Alias& alias, Value& value);
  Value* scattered(Alias& alias, Value& value);
  Alias& alias_of(const at::Tensor& tensor);
  Alias& outside(const at::Tensor& tensor);
  Alias& widened(const at::Tensor& tensor, const std::vector<Region*>& regions);
  void absorb(Region& region, Alias& into);
  void freeze(Alias& alias, const at::Tensor& tensor);
  Value& add_state(const at::Tensor& tensor, std::string name);
  ViewLink link_of(const Alias& alias);
  ViewLink strided_link(const Geometry& whole, const Geometry& part);
  static void check_strided(const Geometry& whole, const Geometry& part);

  // recorder_collectives.cpp
  void forget_contents(const at::Tensor& tensor);
  Value* read_under_way(const Call& call, Alias& alias, bool is_written);
  void add_start(const Call& call, const Node& node);
  void end_wait(Call& call);
  void leave_under_way();

  // recorder_host.cpp
  struct Generator {
    at::Generator generator;
    size_t fingerprint = 0;
  };
  void note_contents(Region& region);
  void note_contents(const Call& call, Region& region);
  void check_contents(Alias& alias, const at::Tensor& tensor);
  bool is_untouched(const Region& region) const;
  void check_contents_before(const at::Tensor& tensor, const Geometry& geometry) const;
  void check_all_contents();
  void meet_default_generators();
  void meet_generator(const at::Generator& generator);
  void check_generators();
  void note_generators(const std::vector<c10::IValue>& arguments);
  void note_draws();
  bool is_unexpected(const Node& node);
  bool is_expected_state(const at::Tensor& tensor) const;
  bool is_expected_constant(const std::string& name, const at::Tensor& contents) const;

  const OperatorInfo& op(const char* name, const char* overload = "");
  Value& append(const OperatorInfo& info, std::vector<Argument> arguments, const Geometry& result);

  RecorderOptions options;
  std::vector<std::unique_ptr<Call>> spare_calls;
  std::unordered_map<const c10::FunctionSchema*, Known> operators;
  Graph graph;
  AliasTable aliases;
  /// A state tensor that was named, and which its node holds.
  struct NamedState {
    std::string name;
    at::Tensor tensor;
  };
  std::unordered_map<Geometry, NamedState, GeometryHash> state_names;
  /// The contents of watched state when the recording began.
  struct Watched {
    at::Tensor tensor;
    size_t contents = 0;
  };
  std::unordered_map<Geometry, Watched, GeometryHash> watched;
  std::unordered_set<std::string> used_names;
  Value* random = nullptr;
  std::vector<Node*> states;
  int64_t num_constants = 0;
  int64_t num_unnamed = 0;
  int64_t num_widened = 0;  ///< calls of widened()
  std::vector<std::pair<Node*, std::vector<void*>>> frames;
  /// The stack frames of operators whose results the expected recording gave, for error messages.
  std::unordered_map<const Node*, std::vector<void*>> frames_of_results;
  std::vector<at::Tensor> arguments;
  std::vector<Region*> regions_under_way;  ///< regions with tensors of started collectives
  std::vector<Generator> generators;
  Graph::Nodes::const_iterator expected;
  size_t num_expected = 0;
  bool is_as_expected = true;
  bool met_other_state = false;
  std::unordered_set<const Node*> expected_results;
  std::unordered_set<const c10::StorageImpl*> expected_state;
  bool is_expected_result = false;  ///< the node that is_unexpected() was asked for last
};

/// To the bit; generators by identity.
bool is_same_constant(const c10::IValue& left, const c10::IValue& right);

}  // namespace levin::graph
