#pragma once
// Casts: tensors of a file whose dtype is not the module's, said in one line.
// For whoever puts weights into a module.
//
//   Casts casts;
//   for (...) casts.note("net.weight", at::kFloat, at::kBFloat16);
//   casts.warn("weights");  // "weights: 1 tensor is cast from Float to the module's BFloat16 (net.weight)"

#include <c10/core/ScalarType.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "levin/base/export.h"

namespace levin::detail {

/// A list of names for a message: some of them, and how many more there are.
LEVIN_API std::string joined_names(const std::set<std::string>& names);

class LEVIN_API Casts {
 public:
  /// Nothing where the two are equal.
  void note(const std::string& name, at::ScalarType from, at::ScalarType to);
  /// Logs one line that begins with `what` and has, for each pair of dtypes, how many tensors are cast and
  /// which. Nothing where there are none.
  void warn(std::string_view what) const;
  /// The same as information, for a dtype that was asked for.
  void tell(std::string_view what) const;

 private:
  std::string text() const;

  std::map<std::pair<at::ScalarType, at::ScalarType>, std::set<std::string>> names_;
};

}  // namespace levin::detail
