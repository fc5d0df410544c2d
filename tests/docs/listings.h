#pragma once
// The C++ listings of the guides, as listings.awk makes functions of them.

#include <vector>

struct Listing {
  const char* place;  ///< "docs/data.md:12"
  void (*run)(int argc, char** argv);
};

extern const std::vector<Listing> listings;
