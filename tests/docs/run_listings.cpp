// Runs each C++ listing of the guides in a process and a folder of its own: `docs_listings [PLACE]`.
// Each has 60 s. What it prints is shown where it fails.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/docs/listings.h"
#include "tests/support/patience.h"

namespace {

namespace fs = std::filesystem;

[[noreturn]] void run_here(const Listing& listing, const fs::path& folder) {
  fs::current_path(folder);
  const int output = ::open("output", O_CREAT | O_WRONLY, 0600);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::alarm(static_cast<unsigned>(levin::test::patient_s(240)));
  // What a program of the guides reads from its command line: enough to see that it trains.
  const char* words[] = {"program", "--max-epochs",          "1", "--limit-val-batches",
                         "2",       "--limit-train-batches", "4"};
  try {
    listing.run(static_cast<int>(std::size(words)), const_cast<char**>(words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(1);
  }
  std::exit(0);
}

bool passes(const Listing& listing, const fs::path& folder) {
  fs::create_directories(folder);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) run_here(listing, folder);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::ifstream in(folder / "output");
  const std::string output{std::istreambuf_iterator<char>(in), {}};
  if (output.find("data.mnist.missing") != std::string::npos) {
    std::printf("%s: skipped, Fashion-MNIST is not here\n", listing.place);
    return true;
  }
  std::printf("%s: failed (status %d)\n%s\n", listing.place, status, output.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  std::string root = (fs::temp_directory_path() / "levin_listings_XXXXXX").string();
  if (::mkdtemp(root.data()) == nullptr) return 2;
  int failed = 0;
  int run = 0;
  for (const Listing& listing : listings) {
    if (argc > 1 && std::string(argv[1]) != listing.place) continue;
    if (!passes(listing, fs::path(root) / std::to_string(run++))) ++failed;
  }
  fs::remove_all(root);
  std::printf("%d listings were run, %d failed\n", run, failed);
  return failed == 0 && run > 0 ? 0 : 1;
}
