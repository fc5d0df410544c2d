#pragma once
// What the tests' sources need, compiled once and as little optimized as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cmake/precompiled.h"
