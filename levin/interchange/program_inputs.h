#pragma once
// ProgramInputs: the arguments of a call as a program takes them, by place or by Python's names.
// Stands between ExportedModule::run and the frame of the call.
// Not for users.

#include <ATen/core/ivalue.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "levin/interchange/load_exported.h"
#include "levin/interchange/program/guard.h"
#include "levin/interchange/program/program.h"

namespace levin::interchange {

class ProgramInputs {
 public:
  /// The program outlives this. Throws Error "interchange.archive" where it has another number of inputs than its
  /// structure.
  explicit ProgramInputs(const Program& program);

  /// Returns the names of forward's arguments.
  const std::vector<std::string>& names() const { return names_; }
  /// The flat inputs, checked: as many as slots(). Throws Error "interchange.input".
  std::vector<c10::IValue> leaves_of(const std::vector<c10::IValue>& arguments,
                                     const ExportedInputs& named) const;
  Slot slot(size_t leaf) const { return program_.inputs[user_inputs_[leaf]].slot; }

 private:
  /// A dim of an input whose size is a number or one symbol.
  struct PlainDim {
    size_t leaf = 0;
    int64_t dim = 0;
    int64_t size = -1;  ///< -1: that of the symbol
    size_t symbol = 0;  ///< by its place in ranges_
  };

  /// A number of an input that guards speak of.
  struct GuardedNumber {
    GuardSource source;
    size_t leaf = 0;
  };

  void plan_sizes();
  void plan_guards();
  std::optional<size_t> leaf_of(const std::string& guarded) const;
  std::optional<std::string> guarded_symbol(const GuardSource& source);
  void check_guards(const std::vector<c10::IValue>& leaves) const;
  void add_constants(const PyTree& tree, const std::string& name,
                     std::vector<c10::IValue>& leaves) const;
  void check_kind(const Input& input, const c10::IValue& value, const std::string& name) const;
  bool have_plain_sizes(const std::vector<c10::IValue>& leaves) const;
  void check_sizes(const std::vector<c10::IValue>& leaves) const;

  const Program& program_;
  std::vector<size_t> user_inputs_;  ///< indices in program_.inputs, in the order of the leaves
  std::vector<std::string> names_;
  std::vector<std::string> leaf_names_;
  std::vector<PlainDim> plain_dims_;
  std::vector<Range> ranges_;
  bool all_dims_are_plain_ = true;
  std::vector<Guard> guards_;
  std::map<std::string, GuardedNumber> guarded_;  ///< by the guards' symbols
};

}  // namespace levin::interchange
