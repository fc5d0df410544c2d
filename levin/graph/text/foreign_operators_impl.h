#pragma once
// Which operators a graph that somebody else has written may call.
// Not for users.

#include <string>
#include <string_view>

namespace levin::graph {

/// What an operator does that a text may not ask for; empty for one that it may. Refused are those
/// that open files, that take sizes, strides or indices for granted, and LibTorch's own beside
/// ATen's, among which are such ones. An operator that the program itself has registered is its
/// own.
std::string_view reason_to_refuse(std::string_view name);

/// A parameter by which an operator can be told to look at no index.
bool is_unchecked_flag(std::string_view parameter);

}  // namespace levin::graph
