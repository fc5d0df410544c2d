#pragma once
// LEVIN_API marks the classes and functions that the shared library exports. All other symbols have
// hidden visibility.
//
//   class LEVIN_API Trainer { ... };

/// Exports a class or function from the shared library.
#define LEVIN_API __attribute__((visibility("default")))
