#pragma once
// Announcement: what a rank is about to do. The ranks of a group compare theirs before they touch
// memory, so that a mistake is an error in all of them and no wrong number.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::comm {

/// It is sent between processes byte by byte. All ranks must announce the same, except for `place`.
struct Announcement {
  char name[24] = {};    ///< "all_reduce"
  char type[16] = {};    ///< "Float"; "" where there is no tensor
  char parts[48] = {};   ///< elements of each rank's, "3,0,7", where they are not all as many
  int64_t count = 0;     ///< elements
  int64_t argument = 0;  ///< root, operation: whatever else must agree
  int64_t label = 0;     ///< label_now() of its LabelScope
  int64_t place = 0;     ///< shm: where in shared memory this rank's elements lie; 0: not there

  std::string text() const;
  bool operator==(const Announcement& other) const;
};

/// Whatever collectives this thread calls or starts for the time of the object is about, where
/// tensors of the same size may be of different things: ranks compare it as all else. 0: nothing.
class LEVIN_API LabelScope {
 public:
  explicit LabelScope(int64_t label);
  ~LabelScope();
  LabelScope(const LabelScope&) = delete;
  LabelScope& operator=(const LabelScope&) = delete;

 private:
  int64_t outer_;
};
LEVIN_API int64_t current_label();

LEVIN_API Announcement announce(std::string_view name, std::string_view type, int64_t count,
                                int64_t argument = 0, int64_t place = 0);

/// The same of a tensor in a part for each rank: of as many elements as one has where all have as
/// many, else of all, and the parts.
Announcement announce_parts(std::string_view name, std::string_view type,
                            std::span<const int64_t> counts, int64_t argument = 0,
                            int64_t place = 0);

/// Throws "comm.mismatch" with both texts when they differ; number counts the group's collectives.
void check_same(const Announcement& mine, int64_t rank, const Announcement& theirs,
                int64_t their_rank, int64_t number);

/// The same for what one rank sent and another expects; `argument` is their tag.
void check_message(const Announcement& sent, int64_t from, const Announcement& expected,
                   int64_t to);

}  // namespace levin::comm
