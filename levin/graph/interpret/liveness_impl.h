#pragma once
// Liveness: who will still read what while operators run in their order. Values that are views of
// each other, or that were written in place, lie in one memory.
//
//   const size_t memory = liveness.add_memory();
//   Live x = liveness.make(memory, value.users().size());
//   liveness.begin_operator();
//   liveness.use(x);
//   if (liveness.may_write(x)) ...

#include <cstddef>
#include <vector>

namespace levin::graph {

/// A value: the memory that it lies in, and how often it will still be read. Stays where it is.
struct Live {
  size_t memory = 0;
  size_t num_uses = 0;
};

class Liveness {
 public:
  size_t add_memory() {
    memories_.emplace_back();
    return memories_.size() - 1;
  }

  /// A value that is made in that memory.
  Live make(size_t memory, size_t num_uses) {
    if (num_uses > 0) ++memories_[memory].num_live;
    return {memory, num_uses};
  }

  /// Call it before the uses of the next operator.
  void begin_operator() { ++operator_; }

  /// The operator reads it: one use less.
  void use(Live& value) {
    Memory& memory = memories_[value.memory];
    if (--value.num_uses == 0) --memory.num_live;
    if (memory.reader_operator == operator_ && memory.reader != &value) memory.shared = operator_;
    memory.reader = &value;
    memory.reader_operator = operator_;
  }

  /// Nobody will read what lies there.
  bool is_free(size_t memory) const { return memories_[memory].num_live == 0; }

  /// Returns whether the operator may write to the value in place: nobody reads it later, and none
  /// of the operator's other arguments shares its memory.
  bool may_write(const Live& value) const {
    return is_free(value.memory) && memories_[value.memory].shared != operator_;
  }

 private:
  struct Memory {
    size_t num_live = 0;  ///< values in it that will still be read
    const Live* reader = nullptr;
    size_t reader_operator = 0;
    size_t shared = 0;  ///< the operator that read several values in it
  };

  std::vector<Memory> memories_;
  size_t operator_ = 0;
};

}  // namespace levin::graph
