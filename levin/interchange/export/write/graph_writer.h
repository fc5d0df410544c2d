#pragma once
// GraphWriter: the nodes of a program, and the numbers that they take of sizes.
// Not for users.

#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "levin/interchange/export/record/recordings.h"
#include "levin/interchange/export/sizes/graph_formulas.h"
#include "levin/interchange/export/write/module_stack.h"
#include "levin/interchange/export/write/program_json.h"

namespace levin::interchange {

/// By call: false for calls without a reader, which are left out as Python's dead code elimination
/// does, and for calls that fill memory that nobody reads (torch::tensor's, which is a constant).
std::vector<bool> used_calls(const Recording& recording);

class GraphWriter {
 public:
  GraphWriter(const Recordings& recordings, const ProgramParts& parts);

  /// The whole graph: inputs in the order parameters, buffers, constants, the user's.
  nlohmann::json graph();
  /// input_specs and output_specs of it.
  nlohmann::json signature() const;
  const ModuleStack& stack() const { return stack_; }

 private:
  using json = nlohmann::json;

  /// A graph, or the body of a region.
  struct Body {
    json nodes = json::array();
    json tensor_values = json::object();
    json sym_int_values = json::object();
    json sym_float_values = json::object();
  };
  /// The modes that are regions of their own: the outer one first.
  enum class Level { kAutocast, kGrad, kPlain };
  /// Some of the calls, [begin, end).
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  /// A size or a number of it that a node computes.
  struct Number {
    std::string name;
    bool is_real = false;
    json value;  ///< for sym_int_values or sym_float_values
  };

  void name_values();
  std::string unique(const std::string& wanted);
  std::vector<ValueId> input_order() const;

  void emit(Body& body, Range range, Level level);
  void emit_region(Body& body, Range range, Level level);
  bool is_ambient(const CallMode& mode, Level level) const;
  void emit_call(Body& body, size_t index);
  json region_settings(const CallMode& mode, Level level) const;
  json graph_of(Body body, json inputs, json outputs) const;

  json argument(size_t call, size_t index);
  json constant(const c10::IValue& constant, const std::vector<NumberFormula>& numbers,
                const c10::TypePtr& type);
  json tensor_list(const RecordedArgument& argument, const c10::TypePtr& type) const;
  bool is_default(size_t call, size_t index) const;
  json results(size_t call) const;
  void add_values(Body& body, const std::vector<ValueId>& values) const;
  json tensor_meta(ValueId id) const;
  json metadata(size_t call) const;

  json whole(const SizeFormula& formula);
  json real(const FormulaSearch::Real& number);
  const Number& real_number(const FormulaSearch::Real& number);
  std::string real_text(const FormulaSearch::Real& number) const;
  const Number& size_number(const SizeFormula& formula);
  const Number& add_number(const std::string& key, const char* target, const std::string& name,
                           json inputs, bool is_real, json value);
  void collect_numbers(size_t call, std::set<std::string>& keys);

  const Recordings& recordings_;
  const Recording& first_;
  const ProgramParts& parts_;
  std::vector<bool> is_used_;  ///< by call
  GraphFormulas formulas_;
  ModuleStack stack_;
  std::set<std::string> taken_;
  std::vector<std::string> names_;  ///< by value
  std::vector<size_t> last_use_;    ///< by value: the call after which nobody takes it
  std::vector<std::string> sources_;
  std::map<std::string, Number> numbers_;  ///< sizes, by the formula's text
  std::map<std::string, Number> reals_;    ///< reals of body_
  Body* body_ = &top_;                     ///< the body that is being filled
  Body top_;
  json outputs_ = json::array();
  size_t num_regions_ = 0;
};

}  // namespace levin::interchange
