// An MPI of one process for tests of what real ones seldom do; LEVIN_FAKE_MPI says what: "no
// threads", "error" or "silence" (nothing that was started is ever done).
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "levin/comm/mpi/module.h"

namespace {

using levin::comm::mpi::Handle;
using levin::comm::mpi::Module;
using levin::comm::mpi::Place;
using levin::comm::mpi::Request;

bool is(std::string_view what) {
  const char* asked = std::getenv("LEVIN_FAKE_MPI");
  return asked != nullptr && asked == what;
}

class FakeMpi final : public Module {
 public:
  Place start() override { return {}; }
  bool allows_threads() const override { return !is("no threads"); }
  void fail() override {}
  Handle world() override { return 1; }
  Handle make_group(std::span<const int>) override { return 1; }
  void free_group(Handle) override {}
  Request all_gather(std::byte*, const int*, const int*, Handle) override {
    if (is("error")) throw std::runtime_error("MPI_Iallgatherv: MPI_ERR_OTHER: known error");
    return {.handle = 1};
  }
  Request broadcast(std::byte*, int, int, Handle) override { return {.handle = 1}; }
  Request send(const std::byte*, int, int, int, Handle) override { return {.handle = 1}; }
  Request receive(std::byte*, int, int, int, Handle) override { return {.handle = 1}; }
  bool test(std::span<Request>) override { return !is("silence"); }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) Module* levin_mpi_module() {
  static FakeMpi module;
  return &module;
}
