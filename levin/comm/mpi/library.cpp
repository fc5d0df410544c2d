#include "levin/comm/mpi/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "levin/base/check.h"
#include "levin/files/trust.h"

namespace levin::comm::mpi {
namespace {

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

// Intel MPI, MVAPICH and Cray's are kinds of MPICH; PMIx without mpirun is srun with Open MPI.
std::string family() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) return "openmpi";
  if (is_set("PMI_SIZE") || is_set("PMI_RANK")) return "mpich";
  if (is_set("PMIX_RANK")) return "openmpi";
  LEVIN_FAIL("comm.mpi.start",
             "this process was not started by mpirun; start it with `mpirun -n N PROGRAM`, or "
             "choose another backend");
}

/// Returns the folder of liblevin, or of the program that it is linked into; with the slash, ""
/// when unknown.
std::string own_folder() {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(&library), &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  return std::filesystem::path(info.dli_fname).parent_path() / "";
}

std::string file_of(const std::string& family) { return "liblevin_mpi_" + family + ".so"; }

// Global: plugins of some MPIs expect to find MPI's own symbols so.
void* open(const std::string& file) { return ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL); }

void* open_module() {
  if (const char* chosen = std::getenv("LEVIN_MPI_MODULE")) {
    void* module = open(chosen);
    LEVIN_CHECK(module != nullptr, "comm.mpi.absent",
                "LEVIN_MPI_MODULE={} cannot be loaded: {}; correct the path, or unset the variable",
                chosen, ::dlerror());
    return module;
  }
  const std::string which = family(), name = file_of(which);
  std::error_code ignored;
  const std::string beside = own_folder() + name;
  const bool is_beside = std::filesystem::exists(beside, ignored);
  if (is_beside) check_trust(beside);
  void* module = open(is_beside ? beside : name);
  if (module != nullptr) return module;
  const std::string reason = ::dlerror();
  LEVIN_FAIL("comm.mpi.absent",
             "the mpirun of {} started this process but {} cannot be loaded: {}; install the MPI "
             "headers (Debian, Ubuntu: lib{}-dev) and rebuild levin with -DLEVIN_WITH_MPI=ON, or "
             "choose another backend",
             which, name, reason, which);
}

// The mpiruns tell in the environment how many ranks are on this host.
bool has_own_core(const Place& place) {
  int64_t ranks = place.size;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* text = std::getenv(name)) ranks = std::strtoll(text, nullptr, 10);
  }
  return ranks <= ::sysconf(_SC_NPROCESSORS_ONLN);
}

Library load() {
  void* handle = open_module();
  auto* factory = reinterpret_cast<Factory*>(::dlsym(handle, kFactory));
  LEVIN_CHECK(factory != nullptr, "comm.mpi.absent",
              "{} is not an MPI module of levin: it has no function {}",
              is_set("LEVIN_MPI_MODULE") ? std::getenv("LEVIN_MPI_MODULE") : family(), kFactory);
  Module& module = *factory();
  try {
    const Place place = module.start();
    LEVIN_CHECK(module.allows_threads(), "comm.mpi.threads",
                "got MPI initialized for one thread, wanted MPI_THREAD_SERIALIZED or more; pass "
                "that level to MPI_Init_thread, or let levin initialize MPI");
    return {module, place, has_own_core(place)};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    LEVIN_FAIL("comm.mpi", "starting: {}", error.what());
  }
}

}  // namespace

void check_trust(const std::string& module) {
  const std::string doubt = files::detail::distrust(std::filesystem::path(module));
  LEVIN_CHECK(doubt.empty(), "comm.mpi.trust",
              "{} is not loaded: {}; make yourself or root its owner and only writer (chown, chmod "
              "go-w), or set LEVIN_MPI_MODULE to its path",
              module, doubt);
}

std::vector<std::string> modules() {
  std::vector<std::string> found;
  for (const char* name : {"openmpi", "mpich"}) {
    std::error_code ignored;
    if (std::filesystem::exists(own_folder() + file_of(name), ignored)) found.emplace_back(name);
  }
  return found;
}

Library& library() {
  static Library loaded = load();
  return loaded;
}

}  // namespace levin::comm::mpi
