#pragma once
// Marks what liblevin shows to its users; everything else stays hidden in the library.

#define LEVIN_API __attribute__((visibility("default")))
