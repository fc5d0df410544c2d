#pragma once
// LibTorch's own build makes this header, where it is for CUDA; its CPU builds lack it and have the others.
