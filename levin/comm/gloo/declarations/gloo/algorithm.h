#pragma once
// ProcessGroupGloo.hpp includes this header of gloo's, which LibTorch's packages leave out, and
// uses nothing of it. Gloo itself is inside libtorch_cpu.
