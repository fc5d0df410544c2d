#pragma once
// Included by ProcessGroupGloo.hpp, which uses nothing of it.
