// Text that is on each machine which compiled these examples: the headers of LibTorch's c10. In a source of
// its own, so that no other object names a folder of this machine.
#include <string>

std::string libtorch_headers() { return LIBTORCH_INCLUDE "/c10"; }
