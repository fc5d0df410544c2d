#pragma once
// measure: the constants of a cluster, found by running operators and collectives on it. What
// `levin env --measure FILE` writes and `levin plan --cluster FILE` reads.
//
//   measure({.file = "cluster.toml", .ranks = 2});

#include <cstdint>
#include <string>

namespace levin::tools {

struct MeasureOptions {
  std::string file;              ///< TOML, written by rank 0
  int64_t ranks = 2;             ///< on this machine, if no launcher has started any
  std::string backend = "auto";  ///< of the collectives
};

/// Measures FLOP/s by dtype, memory bandwidth, collectives and the disk, with all ranks at once, and
/// writes the file. Without a launcher it starts the ranks and does not return. Throws Error
/// "tools.measure" for less than one rank, "files.replace" for a file that holds something else, and
/// "files.write".
void measure(const MeasureOptions& options);

}  // namespace levin::tools
