#pragma once
// Reads the golden files that tests/oracle/make_golden.py wrote.

#include <nlohmann/json.hpp>

#include <fstream>
#include <string>

#include "levin/checkpoint/checkpoint.h"
#include "tests/support/places.h"

namespace golden {

inline std::string path(const std::string& file) {
  return levin::test::source_dir() + "/tests/oracle/golden/" + file;
}
inline nlohmann::json facts(const std::string& subject) {
  return nlohmann::json::parse(std::ifstream(path(subject + ".json")));
}
inline levin::State tensors(const std::string& subject) {
  return levin::load_weights(path(subject + ".safetensors"));
}

}  // namespace golden
