#include "tests/gpu/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/support/patience.h"

namespace levin::test::gpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "LEVIN_GPU_TESTS_FOLDER";
constexpr double kLongestRun_s = 120;

pid_t start(const std::string& test, const Variables& variables, const fs::path& log) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  const std::string filter = "--gtest_filter=" + test;
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  ::execl(self.c_str(), self.c_str(), "--gtest_also_run_disabled_tests", filter.c_str(), nullptr);
  ::_exit(127);
}

/// Kills it where it goes on for too long.
int end_of(pid_t pid) {
  int status = 0;
  if (!soon([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, kLongestRun_s)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Variables with_folder(Variables variables, const fs::path& folder) {
  variables[kFolder] = folder.string();
  return variables;
}

std::string last_lines(const std::string& text) {
  constexpr size_t kMost = 1500;
  return text.size() > kMost ? text.substr(text.size() - kMost) : text;
}

c10::CachingDeviceAllocator::DeviceStats stats() {
  return c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(device().index());
}
constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

std::vector<std::string> run_program(int64_t size, const std::string& test,
                                     const Variables& variables) {
  const Scratch scratch;
  std::vector<pid_t> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    Variables own = with_folder(variables, scratch.path());
    const std::string number = std::to_string(rank), all = std::to_string(size);
    own.insert({{"RANK", number},
                {"LOCAL_RANK", number},
                {"WORLD_SIZE", all},
                {"LOCAL_WORLD_SIZE", all},
                {"MASTER_ADDR", "file://" + (scratch / "store").string()}});
    ranks.push_back(start(test, own, scratch / ("log." + number)));
  }
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < size; ++rank) {
    const int code = end_of(ranks[static_cast<size_t>(rank)]);
    const std::string number = std::to_string(rank);
    const fs::path word = scratch / ("said." + number);
    words.push_back(fs::exists(word) ? get(word)
                                     : fmt::format("ended with {}: {}", code,
                                                   last_lines(get(scratch / ("log." + number)))));
  }
  return words;
}

fs::path shared_folder() {
  const char* folder = std::getenv(kFolder);
  TORCH_CHECK(folder != nullptr, "this test is started by another one");
  return folder;
}

void say(const std::string& word) {
  const char* rank = std::getenv("RANK");
  put(shared_folder() / (std::string("said.") + (rank == nullptr ? "0" : rank)), word);
}

void say_of(const std::function<std::string()>& body) {
  try {
    say(body());
  } catch (const std::exception& error) {
    say(error.what());
  }
}

int run_and_kill(const std::string& test, const fs::path& folder, const std::string& file,
                 const Variables& variables) {
  const pid_t pid = start(test, with_folder(variables, folder), folder / "log");
  int status = 0;
  const bool ended =
      soon([&] { return fs::exists(folder / file) || ::waitpid(pid, &status, WNOHANG) == pid; },
           kLongestRun_s);
  if (!ended || fs::exists(folder / file)) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int64_t allocated_bytes() { return stats().allocated_bytes[kAll].current; }
int64_t peak_bytes() { return stats().allocated_bytes[kAll].peak; }
void reset_peak() {
  synchronize();
  c10::getDeviceAllocator(at::kCUDA)->resetPeakStats(device().index());
}

std::string off_by(const at::Tensor& got, const at::Tensor& wanted, double tolerance) {
  const at::Tensor left = got.detach().cpu().to(at::kDouble);
  const at::Tensor right = wanted.detach().cpu().to(at::kDouble);
  if (left.sizes() != right.sizes()) {
    return c10::str("is ", left.sizes(), ", wanted ", right.sizes());
  }
  if (left.numel() == 0) return "";
  const double off = (left - right).abs().max().item<double>();
  const double size = std::max(1.0, right.abs().max().item<double>());
  return off <= tolerance * size ? "" : fmt::format("is off by {} of {}", off, size);
}

}  // namespace levin::test::gpu
