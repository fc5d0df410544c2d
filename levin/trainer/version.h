#pragma once
// The version of levin: of the CMake package (CMakeLists.txt reads it here), of `levin --version`,
// and in each checkpoint.

namespace levin {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace levin
