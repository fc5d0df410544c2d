#pragma once
// Recordings: what a Compiled has recorded of its function under one set of conditions.

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "levin/graph/compile/compiled.h"
#include "levin/graph/compile/result_memory_impl.h"

namespace levin::graph {

/// When what the function does was last held against a recording.
struct ComparedAt {
  int64_t step = 0;
  int64_t num_replayed = 0;  ///< replays of the Compiled before it
};

/// One thing that the function does under these conditions. Equal recordings are one.
struct Variant {
  Graph recorded;                ///< the first of them
  std::optional<Graph> changed;  ///< after the passes; what the runner runs
  std::unique_ptr<Runner> runner;
  HostPart recording;  ///< the newest
  size_t num_results = 0;
  size_t num_values = 0;             ///< values of the recording, after the results
  std::vector<ResultMemory> memory;  ///< memory of each result
  std::vector<KeptTensor> kept;
  int64_t num_replays = 0;
  int64_t num_calls = 0;  ///< since there is a runner
  ComparedAt compared_at = {};
  bool check_is_due = false;
  bool is_unchecked = false;  ///< since that takes too much memory
};

class Recordings {
 public:
  explicit Recordings(const Conditions& conditions);

  bool holds_for(const Conditions& conditions) const;
  /// Returns in words the first difference.
  std::string difference_to(const Conditions& conditions) const;

  /// The variant that the function certainly runs with these arguments and the same answers to what
  /// it asks for; nullptr if that is unknown.
  Variant* find(const Conditions& conditions);
  /// The same, but where it is known that it then does not do what this variant does, since the
  /// host reads something else.
  Variant* find(const Conditions& conditions, const Variant& failed, const OtherRead& read);
  /// The function did this, with these arguments and answers. Returns the variant that it is; a new
  /// one where it is like none, and then says in `difference` how it differs from the one before.
  /// equal: the variant whose graph is known to be this one, where one is.
  Variant& add(const Conditions& conditions, Graph&& graph, const HostPart& recording,
               std::string& difference, const Variant* equal = nullptr);
  /// Returns whether the last result of add() is certain: it came twice in a row, or others agree.
  bool is_certain() const { return is_certain_; }
  void drop(const Variant& variant);
  void clear();

  // Counts by which Compiled gives up.
  int num_surprises = 0;  ///< recordings that differ from one under the same arguments and answers
  int num_wasted = 0;     ///< dropped after few replays
  /// Recordings in a row under answers, or of reads of the host, that never came before.
  int num_new_answers = 0;
  std::string last_difference;
  bool is_refused = false;

  const std::vector<std::unique_ptr<Variant>>& variants() const { return variants_; }

 private:
  struct Path {
    std::vector<ExactNumber> arguments;
    std::vector<HostPart::Dependence> answers;
    Variant* variant = nullptr;
    bool is_certain = false;
  };
  static bool is_now(const Path& path, const Conditions& conditions);
  static uint64_t hash_of(const Conditions& conditions);
  template <class Predicate>
  Variant* find_where(const Conditions& conditions, const Predicate& predicate);
  Path* find_path(const Conditions& conditions, const HostPart& recording, const Graph& graph);
  void forget_paths_to(const Variant& variant);

  std::vector<ValueType> inputs_;
  std::vector<int> flags_;  ///< flags of the inputs
  std::vector<std::string> names_;
  std::vector<ExactNumber> guards_;
  std::vector<std::string> guard_names_;
  std::vector<std::unique_ptr<Variant>> variants_;  ///< the newest last
  std::unordered_map<uint64_t, std::vector<Path>> paths_;
  size_t num_paths_ = 0;
  bool is_certain_ = false;
};

}  // namespace levin::graph
