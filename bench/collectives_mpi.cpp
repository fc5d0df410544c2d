// The same table as bench_collectives, by the MPI library's own calls: what others can have today.
//
//   mpirun -n 2 bench_collectives_openmpi [SECONDS [MOST_BYTES]]
// The C++ bindings that MPI itself gave up.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

// NOLINTBEGIN: MPI's constants are casts
namespace {

double seconds_of(int times, auto&& call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (int i = 0; i < times; ++i) call();
  double took = MPI_Wtime() - began, slowest = 0;
  MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

void report(const char* name, long bytes, double seconds, int rank, int size, auto&& call) {
  call();
  const double once = seconds_of(1, call);
  const int batch = std::clamp(static_cast<int>(0.02 / once), 1, 10000);
  const int batches = std::clamp(static_cast<int>(seconds / (once * batch)), 3, 25);
  std::vector<double> times;
  for (int i = 0; i < batches; ++i) times.push_back(seconds_of(batch, call) / batch * 1e6);
  std::sort(times.begin(), times.end());
  if (rank != 0) return;
  std::printf(
      "{\"backend\": \"" LEVIN_MPI_NAME
      "\", \"ranks\": %d, \"operation\": \"%s\", \"bytes\": %ld, \"shared\": false, \"us\": %.3f, "
      "\"least_us\": %.3f}\n",
      size, name, bytes, times[times.size() / 2], times.front());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  const long most_bytes = argc > 2 ? std::atol(argv[2]) : 400'000'000;
  for (long bytes = 40; bytes <= most_bytes; bytes *= 10) {
    const int part = static_cast<int>(std::max<long>(bytes / 4, size) / size);
    const int count = part * size;
    std::vector<float> whole(static_cast<size_t>(count), 1), small(static_cast<size_t>(part), 1);
    report("all_reduce", bytes, seconds, rank, size, [&] {
      MPI_Allreduce(MPI_IN_PLACE, whole.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    report("reduce_scatter", bytes, seconds, rank, size, [&] {
      MPI_Reduce_scatter_block(whole.data(), small.data(), part, MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
    });
    report("all_gather", bytes, seconds, rank, size, [&] {
      MPI_Allgather(small.data(), part, MPI_FLOAT, whole.data(), part, MPI_FLOAT, MPI_COMM_WORLD);
    });
    report("broadcast", bytes, seconds, rank, size,
           [&] { MPI_Bcast(whole.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); });
  }
  MPI_Finalize();
}
// NOLINTEND
