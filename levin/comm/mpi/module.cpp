#include "levin/comm/mpi/module.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace levin::comm::mpi {
namespace {

// MPI's handles are pointers or numbers.
template <class T>
Handle handle_of(T value) {
  static_assert(sizeof(T) <= sizeof(Handle));
  Handle handle = 0;
  std::memcpy(&handle, static_cast<const void*>(&value), sizeof(T));
  return handle;
}
template <class T>
T value_of(Handle handle) {
  T value;
  std::memcpy(static_cast<void*>(&value), &handle, sizeof(T));
  return value;
}

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(function) + ": " + text);
}

bool is_over() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

class ThisMpi final : public Module {
 public:
  Place start() override {
    int initialized = 0;
    check(MPI_Initialized(&initialized), "MPI_Initialized");
    if (initialized == 0) {
      int given = 0;
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread");
      ::on_exit([](int code, void* self) { static_cast<ThisMpi*>(self)->end(code); }, this);
    }
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    Place place;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &place.size), "MPI_Comm_size");
    return place;
  }

  bool allows_threads() const override {
    int given = 0;
    check(MPI_Query_thread(&given), "MPI_Query_thread");
    return given >= MPI_THREAD_SERIALIZED;
  }

  void fail() override { failed_ = true; }

  Handle world() override { return handle_of(MPI_COMM_WORLD); }

  Handle make_group(std::span<const int> ranks) override {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group world = MPI_GROUP_NULL, part = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &part),
          "MPI_Group_incl");
    check(MPI_Comm_create_group(MPI_COMM_WORLD, part, ranks[0], &made), "MPI_Comm_create_group");
    MPI_Group_free(&part);
    MPI_Group_free(&world);
    check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return handle_of(made);
  }

  void free_group(Handle group) override {
    auto communicator = value_of<MPI_Comm>(group);
    if (!is_over()) MPI_Comm_free(&communicator);
  }

  Request all_gather(std::byte* data, const int* counts, const int* places, Handle group) override {
    MPI_Request made = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, counts, places, MPI_BYTE,
                          value_of<MPI_Comm>(group), &made),
          "MPI_Iallgatherv");
    return {.handle = handle_of(made)};
  }

  Request broadcast(std::byte* data, int bytes, int root, Handle group) override {
    MPI_Request made = MPI_REQUEST_NULL;
    check(MPI_Ibcast(data, bytes, MPI_BYTE, root, value_of<MPI_Comm>(group), &made), "MPI_Ibcast");
    return {.handle = handle_of(made)};
  }

  Request send(const std::byte* data, int bytes, int to, int tag, Handle group) override {
    MPI_Request made = MPI_REQUEST_NULL;
    check(MPI_Isend(data, bytes, MPI_BYTE, to, tag, value_of<MPI_Comm>(group), &made), "MPI_Isend");
    return {.handle = handle_of(made)};
  }

  Request receive(std::byte* data, int bytes, int from, int tag, Handle group) override {
    MPI_Request made = MPI_REQUEST_NULL;
    check(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, value_of<MPI_Comm>(group), &made),
          "MPI_Irecv");
    return {.handle = handle_of(made), .receives = true};
  }

  bool test(std::span<Request> requests) override {
    bool all = true;
    for (Request& request : requests) all = test(request) && all;
    return all;
  }

 private:
  static bool test(Request& request) {
    auto handle = value_of<MPI_Request>(request.handle);
    if (handle == MPI_REQUEST_NULL) return true;
    MPI_Status status;
    int done = 0;
    const int code = MPI_Test(&handle, &done, &status);
    request.handle = handle_of(handle);
    int kind = MPI_SUCCESS;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
    if (request.receives && kind == MPI_ERR_TRUNCATE) {
      request.handle = handle_of(MPI_REQUEST_NULL);
      request.bytes = Request::kTooLong;
      return true;
    }
    check(code, "MPI_Test");
    if (done != 0 && request.receives) MPI_Get_count(&status, MPI_BYTE, &request.bytes);
    return done != 0;
  }

  void end(int code) const {
    if (is_over()) return;
    if (code != 0 || failed_) MPI_Abort(MPI_COMM_WORLD, std::max(code, 1));
    MPI_Finalize();
  }

  bool failed_ = false;
};

}  // namespace
}  // namespace levin::comm::mpi

extern "C" __attribute__((visibility("default"))) levin::comm::mpi::Module* levin_mpi_module() {
  static levin::comm::mpi::ThisMpi module;
  return &module;
}
