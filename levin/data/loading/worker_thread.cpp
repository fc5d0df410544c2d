#include "levin/data/loading/worker_thread.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>

#include <exception>
#include <utility>

// A function of the OpenMP runtime that LibTorch loads. It sets the calling thread only, whereas
// at::set_num_threads also sets the default of later threads. Weak, since LibTorch may be built
// without OpenMP.
extern "C" void omp_set_num_threads(int count) __attribute__((weak));

namespace levin::detail {
namespace {

void compute_in_one_thread() {
  at::get_num_threads();  // has LibTorch set up this thread, which would else undo the next line
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
}

}  // namespace

std::jthread start_worker(std::function<void(const std::stop_token&)> work) {
  return std::jthread(
      [state = at::ThreadLocalState(), work = std::move(work)](const std::stop_token& stop) {
        const at::ThreadLocalStateGuard inherit(state);
        compute_in_one_thread();
        work(stop);
      });
}

std::string current_message() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

}  // namespace levin::detail
