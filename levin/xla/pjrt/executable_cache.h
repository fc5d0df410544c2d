#pragma once
// ExecutableCache: compiled programs on disk, so that the second start of a training compiles none.
// Stands before Client::compile.
//
//   pjrt::ExecutableCache cache;                       // ~/.cache/levin/xla
//   const pjrt::Executable step = cache.compile(client, stablehlo);

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "levin/base/export.h"
#include "levin/xla/pjrt/client.h"
#include "levin/xla/pjrt/executable.h"

namespace levin::xla::pjrt {

struct CacheOptions {
  /// "" is LEVIN_XLA_CACHE, $XDG_CACHE_HOME/levin/xla or ~/.cache/levin/xla, the first that is set;
  /// LEVIN_XLA_CACHE=off keeps nothing.
  std::filesystem::path folder = {};
  /// The least recently used entries go when all exceed this limit.
  int64_t limit_bytes = int64_t{2} << 30;
};

/// One file an entry, under a digest (XXH3, 128 bits) of all that decides the compiler's output:
/// the text, the options, the plugin's build, its platform and devices, XLA_FLAGS,
/// LIBTPU_INIT_ARGS, and on CPUs the processor's features. Processes may share the folder. An error
/// of the folder never fails the caller: an entry that is damaged, or that the plugin refuses, is
/// removed and compiled anew, and an entry that cannot be written is not kept; either is one
/// warning. An entry is a program that runs as this user: an entry that another user owns or may
/// write counts as damaged, and a link is not followed. For one thread at a time.
class LEVIN_API ExecutableCache {
 public:
  /// Makes the folder for this user alone, and its own so. Throws "xla.cache" for one that another
  /// user owns or may write.
  explicit ExecutableCache(const CacheOptions& options = {});

  /// Does Client::compile and throws the same errors. Calls on_miss before the compiler.
  Executable compile(const Client& client, std::string_view text,
                     const CompileOptions& options = {}, const std::function<void()>& on_miss = {});

  /// Empty where nothing is kept.
  const std::filesystem::path& folder() const { return folder_; }
  int64_t hits() const { return hits_; }
  int64_t misses() const { return misses_; }
  /// Seconds spent in the compiler.
  double compile_s() const { return compile_s_; }

 private:
  std::filesystem::path folder_;
  int64_t limit_bytes_;
  bool can_write_ = true;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
  double compile_s_ = 0;
};

}  // namespace levin::xla::pjrt
