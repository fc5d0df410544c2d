#pragma once
// UnitCache: which UnitMemory has its full values now, in buffers of a limited size. Over the limit,
// what was gathered first goes first. All ranks gather the same memories in the same order; a rank
// that does not causes "comm.mismatch" on all of them.
//
//   UnitCache cache(group, 1 << 28);
//   const size_t number = cache.add({&unit.memory()}, 1, /*stays=*/false);
//   cache.begin(UnitCache::Pass::kForward);  cache.gather({number});

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/comm/process_group.h"
#include "levin/strategy/fsdp/unit_memory.h"

namespace levin::fsdp {

/// Units that are gathered at a time by default: the one at hand, the one before it and the next.
inline constexpr int64_t kUnitsAtATime = 3;

/// Says how a gathered unit is freed that no operator needs now (reshard_after_forward).
struct Resharding {
  bool stays = false;  ///< it stays gathered until values change, beside the limit
  /// Neighbouring ranks. When a forward pass frees the unit, each of them keeps a part, beside the
  /// limit, and until values change it is gathered from these parts. One rank: no parts are kept.
  comm::ProcessGroup near = {};
};

/// Cuts so many elements (or bytes) into parts, as even as can be.
std::vector<int64_t> even_parts(int64_t count, int64_t num_parts);

class UnitCache {
 public:
  /// group: all ranks that compute. gathered_bytes: bytes of buffers at a time; 0: those of three
  /// units, -1: no limit.
  UnitCache(const comm::ProcessGroup& group, int64_t gathered_bytes);

  /// Adds the memories of one unit, which outlive this: first those that a pass usually needs, then
  /// others. Returns the first one's number.
  size_t add(const std::vector<UnitMemory*>& of_unit, size_t num_needed,
             const Resharding& resharding);
  /// Forgets all memories; nothing is gathered.
  void clear();

  enum class Pass { kForward, kBackward, kEvaluation };
  /// Memories are gathered in the order of the last pass of its kind, as a rule, or in that order.
  void begin(Pass pass);
  void expect(std::vector<size_t> order);

  const UnitMemory& memory(size_t number) const { return *entries_[number].unit; }
  bool is_here(size_t number) const {
    return entries_[number].is_here && !entries_[number].is_coming;
  }
  /// An operator that comes next reads these: they stay until the one after it. Gathers what is not
  /// here, then what comes next.
  void gather(std::span<const size_t> numbers);
  /// Values have changed.
  void drop();
  /// Called after an evaluation, in which ranks may make different numbers of passes: gathers with
  /// the others until they have ended theirs too.
  void end_evaluation();

  /// Calls it. If the ranks gather different things, the Error names units and parameters instead
  /// of numbers.
  template <class Call>
  decltype(auto) named(Call&& call) const {
    try {
      return call();
    } catch (const Error& error) {
      if (error.id() != "comm.mismatch" && error.id() != "comm.timeout") throw;
      throw Error(error.id(), with_names(error.text()));
    }
  }

  int64_t num_gathers() const { return num_gathers_; }
  /// Returns how many gathers in backward passes nothing read.
  int64_t num_in_vain() const { return num_in_vain_; }
  /// Returns the bytes of all gathers.
  int64_t num_bytes() const { return num_bytes_; }
  /// Returns the bytes of gathers from the parts that neighbouring ranks kept.
  int64_t num_near_bytes() const { return num_near_bytes_; }
  /// Returns the peak bytes of gathered parameters, free buffers and kept parts so far.
  int64_t most_bytes() const { return most_bytes_; }

 private:
  struct Entry {
    UnitMemory* unit = nullptr;
    Resharding resharding = {};
    at::Tensor buffer = {};  ///< bytes: gathered, or under way
    at::Tensor part = {};    ///< bytes: this rank's part, where neighbouring ranks keep some
    comm::Work work = {};
    bool is_here = false;  ///< gathered or under way
    bool is_coming = false;
    bool is_near = false;          ///< it came, or is coming, from parts of neighbouring ranks
    bool has_part = false;         ///< part has the values of now
    bool was_in_vain = false;      ///< it was fetched ahead in backward, and nothing read it
    bool is_for_backward = false;  ///< fetched in one
    int64_t operation = 0;         ///< the operation that read it last
  };

  void gather(size_t index);
  void start(size_t index);
  void arrive(size_t index);
  void prefetch();
  std::optional<size_t> next_expected() const;
  void note_gathered(size_t index);
  void note_in_vain();
  /// Frees what was gathered first until one fits; false where that cannot be.
  bool make_room_for(size_t index);
  void give_back(Entry& entry);
  void keep_part(Entry& entry);
  void note_memory();
  at::Tensor take_buffer(int64_t bytes, at::Device device);
  /// Exchanges the number that each rank wants; nothing: no rank wants more.
  std::optional<size_t> exchange_wishes(int64_t mine);
  const std::string& unit_name(size_t number) const;
  std::string with_names(std::string text) const;

  comm::ProcessGroup group_;
  int64_t gathered_bytes_;
  std::vector<Entry> entries_;
  std::deque<size_t> gathered_;    ///< the first in front
  std::vector<at::Tensor> free_;   ///< buffers, of bytes
  std::vector<size_t> orders_[3];  ///< as the last pass of each kind gathered
  std::vector<size_t> now_;        ///< the same of this pass
  std::optional<std::vector<size_t>> expected_;
  size_t next_ = 0;  ///< in expected_
  Pass pass_ = Pass::kForward;
  bool follows_ = false;  ///< this pass, the last one so far
  int64_t operation_ = 0;
  int64_t used_bytes_ = 0;
  int64_t free_bytes_ = 0;
  int64_t part_bytes_ = 0;
  int64_t most_bytes_ = 0;
  int64_t limit_ = 0;
  int64_t largest_ = 0;  ///< bytes of a unit
  int64_t staying_ = 0;  ///< bytes of units that stay
  int64_t num_gathers_ = 0;
  int64_t num_in_vain_ = 0;
  int64_t num_bytes_ = 0;
  int64_t num_near_bytes_ = 0;
};

}  // namespace levin::fsdp
