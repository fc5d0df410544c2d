#pragma once
// Where the tests find what the build has made. One source alone is compiled with these paths, so that
// a compiler's cache serves the others in each clone.

#include <string>

namespace levin::test {

const std::string& source_dir();     ///< the checkout
const std::string& levin_command();  ///< build/bin/levin
/// LibTorch's folder of torch.h and nn/.
const std::string& torch_headers();
/// tests/embedded; empty where it is not built.
const std::string& embedded_program();
// Test doubles; empty where they are not built.
const std::string& fake_pjrt();
const std::string& joined_pjrt();
const std::string& fake_mpi();

}  // namespace levin::test
