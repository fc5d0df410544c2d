#pragma once
// SharedSave: files of a plan that the ranks of a group write together. Rank 0 makes the plan;
// where hosts share no disk, the first rank of each host makes a set of files. Each host's files
// have all tensors that all ranks hold, and its own ranks' rows of sharded tensors.
//
//   SharedSave save(group, sources, make_plan, hosts);
//   save.stage([&](const SavePlan& plan) { return files_made_for(plan); });
//   save.write();                                      // this rank's part, by any thread
//   save.finish([&](const Manifest& manifest) { commit(manifest); });
// Not for users.

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/saving/own_pieces_impl.h"
#include "levin/checkpoint/saving/piece_writing_impl.h"
#include "levin/checkpoint/saving/save_plan_impl.h"
#include "levin/comm/process_group.h"

namespace levin::detail {

/// The word of a rank that saves to a folder: one for all ranks, or, on each node, one for those of a
/// host that save to the same.
std::string sharers_of(const std::filesystem::path& folder, const SaveCheckpointOptions& options);

class SharedSave {
 public:
  /// Called by all ranks, as stage() and finish() are: own on each, make_plan on rank 0. sharers:
  /// ranks of equal words write to one set of files, see sharers_of().
  SharedSave(comm::ProcessGroup group, const std::function<Sources()>& own,
             const std::function<SavePlan()>& make_plan, const std::string& sharers);

  const SavePlan& plan() const { return plan_; }
  /// This rank makes its host's files.
  bool is_first() const { return team_.front() == group_.rank(); }

  /// make_files gives where the plan's files are, in its order; it is run on the first ranks.
  void stage(const std::function<std::vector<std::filesystem::path>(const SavePlan&)>& make_files);
  /// Copies what this rank will write, so that the tensors may change; after stage().
  void copy_into(SaveBuffer& buffer);
  /// Writes this rank's part and syncs it. finish() throws its errors.
  void write();
  /// commit is run on the first ranks, once all have written. Throws on all what went wrong on one:
  /// "files.write", "checkpoint.slice" for rows that no rank or two ranks have, and what commit
  /// throws.
  void finish(const std::function<void(const Manifest&)>& commit);

 private:
  struct Entry {
    WrittenPiece piece;
    bool is_here = false;  // in this host's files
  };

  void note_failure(const std::function<void()>& body);
  std::vector<Entry> entries_in(const std::vector<State>& words) const;
  Manifest manifest_of(const std::vector<State>& words) const;

  comm::ProcessGroup group_;
  Sources own_;
  SavePlan plan_;
  std::vector<int64_t> team_;         // ranks of this host's files
  std::vector<int64_t> first_ranks_;  // first rank of each host
  std::string save_;                  // a name that no other save has
  std::vector<std::filesystem::path> places_;
  std::vector<OwnPiece> pieces_;
  std::vector<WrittenPiece> written_;
  std::exception_ptr failure_;
};

}  // namespace levin::detail
