#pragma once
// KeptCache: keys and values from one call of generate to the next, so that a turn of a chat costs what is new
// in it.
//
//   models::KeptCache kept;
//   net->generate(first_turn, {.kept = &kept, .tokenizer = &tokenizer});
//   net->generate(both_turns, {.kept = &kept, .tokenizer = &tokenizer});   // reads what follows the first

#include <cstdint>
#include <memory>

#include "levin/base/export.h"

namespace levin::models {

/// Of one text. A call takes up the tokens that its prompt begins with and that are here; where the prompt
/// goes another way, as where a template rewrites an earlier turn, the cache is cut back to there. Layers
/// with a sliding window have lost what a cut needs once the text was longer than the window: they are
/// begun anew with all others. Another model begins anew; call forget() where weights or adapters have
/// changed. A call that throws leaves nothing here.
class LEVIN_API KeptCache {
 public:
  KeptCache();
  ~KeptCache();
  KeptCache(KeptCache&&) noexcept;
  KeptCache& operator=(KeptCache&&) noexcept;

  /// Tokens whose keys and values are here.
  int64_t size() const;
  void forget();

  struct Held;

 private:
  friend class Generation;
  std::unique_ptr<Held> held_;
};

}  // namespace levin::models
