// Writes the files that fuzzers begin with, a folder for each.
//
//   fuzz_seeds build-fuzz/corpus

#include <cstdio>

#include "tests/fuzz/seeds.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  levin::fuzz::put_seeds(argv[1]);
  return 0;
}
