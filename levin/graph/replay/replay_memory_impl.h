#pragma once
// ReplayMemory: where each value of a replay lies, and how long that is needed. Filled while
// operators are gone through in their order; then laid out in one arena.
//
//   const PlacedTensor placed = memory.make(value.type(), MemoryKind::kPlanned);
//   memory.store(value, placed);
//   memory.begin_operator();
//   memory.use(value);
//   if (memory.may_write(value)) ...

#include <ATen/core/Tensor.h>

#include <unordered_map>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/interpret/liveness_impl.h"
#include "levin/graph/replay/memory_plan.h"

namespace levin::graph {

/// The kinds of memory that hold values which are views of each other.
enum class MemoryKind {
  kGiven,     ///< an input or a state tensor
  kPlanned,   ///< a part of the arena
  kAdopted,   ///< allocated by the operator that gives it
  kConstant,  ///< computed once
};

/// A tensor and the number of its memory.
struct PlacedTensor {
  at::Tensor tensor;
  size_t memory = 0;
};

class ReplayMemory {
 public:
  /// A tensor whose memory comes later: from the arena, from an operator or from the caller.
  PlacedTensor make(const ValueType& type, MemoryKind kind);
  /// One that is there.
  PlacedTensor keep(const at::Tensor& tensor, MemoryKind kind);
  void store(const Value& value, const PlacedTensor& placed);
  bool holds(const Value* value) const { return slots_.contains(value); }
  PlacedTensor at(const Value& value) const;
  MemoryKind kind(const Value& value) const;
  MemoryKind kind(const PlacedTensor& placed) const { return memories_[placed.memory].kind; }
  /// Allows writes in place to values stored so far that lie in given memory.
  void allow_writes(const Value& value);
  /// Returns whether somebody may write to the memory of a value at all.
  bool may_change(const Value& value) const;

  /// Call it before the next node; memory made or used from here on is needed there.
  void begin_node() { ++step_; }
  /// Begins the present node, before its uses.
  void begin_operator() { liveness_.begin_operator(); }
  void use(const Value& value);
  /// Marks a value as needed until the end.
  void use_at_end(const Value& value);
  /// Returns whether the present operator may write to the value's memory: nobody else reads it
  /// later.
  bool may_write(const Value& value) const;
  /// Adopted memory among that of the values which nobody will read any more, each once.
  struct Released {
    size_t memory = 0;
    c10::Storage storage;
  };
  std::vector<Released> released(const std::vector<const Value*>& used) const;

  /// Pairs of these that have bytes in common: all that are in one.
  std::vector<const Value*> overlapping(const std::vector<const Value*>& values) const;

  /// Returns whether the tensor may be placed beside others: it is all of a planned memory that is
  /// not placed yet.
  bool may_join(const PlacedTensor& placed) const;
  /// Places the memories of a row side by side, without gaps. Does nothing if one of them may not
  /// be placed so.
  void join(const std::vector<PlacedTensor>& row);

  /// Marks a value's memory as one that other ranks read.
  void note_sent(const Value& value);
  /// Gives memory that other ranks read its place in one of these tensors, which it keeps alive. The
  /// memories that are needed shortest come first. Returns how many have a place.
  int64_t lay_out_sent(const std::vector<at::Tensor>& places);
  /// Gives the other planned memory its places in an arena of its device, which it keeps alive. Returns the
  /// arenas; bytes and needed are those of all of them.
  std::vector<at::Tensor> lay_out(int64_t& bytes, int64_t& needed) const;

 private:
  struct Memory {
    MemoryKind kind = MemoryKind::kPlanned;
    c10::Storage storage;
    MemoryNeed need = {};
    bool may_change = false;
    bool is_in_row = false;
    bool is_sent = false;
    bool is_laid_out = false;
  };
  struct Slot {
    at::Tensor tensor;
    Live live;
  };
  size_t add(MemoryKind kind, c10::Storage storage, int64_t bytes);
  std::vector<std::vector<size_t>> planned() const;
  void place(const Memory& memory, const at::Tensor& in, int64_t offset) const;
  at::Tensor lay_out(const std::vector<std::vector<size_t>>& planned, MemoryPlan& plan) const;

  std::vector<Memory> memories_;
  std::vector<std::vector<size_t>> rows_;  ///< memories that lie side by side
  std::unordered_map<const Value*, Slot> slots_;
  Liveness liveness_;  ///< liveness of the memories, by the same numbers
  size_t step_ = 0;
};

}  // namespace levin::graph
