#include "tests/support/places.h"

namespace levin::test {

const std::string& source_dir() {
  static const std::string path = LEVIN_SOURCE_DIR;
  return path;
}

const std::string& levin_command() {
  static const std::string path = LEVIN_COMMAND;
  return path;
}

const std::string& torch_headers() {
  static const std::string path = LEVIN_TORCH_HEADERS;
  return path;
}

const std::string& embedded_program() {
  static const std::string path = LEVIN_EMBEDDED;
  return path;
}

const std::string& fake_pjrt() {
  static const std::string path = LEVIN_FAKE_PJRT;
  return path;
}

const std::string& joined_pjrt() {
  static const std::string path = LEVIN_JOINED_PJRT;
  return path;
}

const std::string& fake_mpi() {
  static const std::string path = LEVIN_FAKE_MPI;
  return path;
}

}  // namespace levin::test
