#pragma once
// collectives: what the devices of a compiled program exchange, read from its text.
//
//   for (const Collective& one : collectives_of(program.optimized_text())) one.kind;  //
//   "all-reduce"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace levin::tools {

/// All of one kind.
struct Collective {
  std::string kind;   ///< XLA's word, "all-reduce"
  int64_t count = 0;  ///< instructions; one may join many tensors
  int64_t bytes = 0;  ///< of their results on one device, without what layouts add
};

/// From XLA's text of a program, one instruction a line. The largest first.
std::vector<Collective> collectives_of(std::string_view optimized_text);

/// "(f32[8,2], bf16[4])": 72. What has no size in bytes (tokens) counts nothing.
int64_t bytes_of_shape(std::string_view shape);

}  // namespace levin::tools
