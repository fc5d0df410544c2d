// examples/18_from_python.cpp as its comment says: Python makes the network, two ranks train it, are killed and go on,
// and Python opens what they learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "levin/interchange/load_exported.h"
#include "levin/module/parameters.h"
#include "tests/oracle/python.h"
#include "tests/support/places.h"

namespace levin::test::from_python {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FromPython : public PythonTest {
 protected:
  static std::string example() {
    return (fs::path(levin_command()).parent_path() / "18_from_python").string();
  }
  static std::string command(const fs::path& folder, const std::string& arguments) {
    return "cd '" + folder.string() + "' && exec '" + example() +
           "' --devices 2 --max-epochs 8 --enable-progress-bar false " + arguments + " >log 2>&1";
  }
  fs::path with_network(const std::string& name) const {
    const fs::path folder = file(name);
    fs::create_directories(folder);
    std::string output;
    EXPECT_EQ(run("from_python.py", "make_net.py '" + folder.string() + "'", &output), 0) << output;
    return folder;
  }
  static std::string last_line(const fs::path& folder) {
    std::string line, last;
    for (std::ifstream log(folder / "log"); std::getline(log, line);) last = line;
    return last;
  }
  static State weights(const fs::path& folder) {
    return module_state(*load_exported(folder / "trained.pt2"));
  }
};

TEST_F(FromPython, TrainsIsKilledGoesOnAndIsOpenedInPython) {
  if (!fs::exists(example())) GTEST_SKIP() << "the examples are not built";
  const fs::path whole = with_network("whole"), killed = with_network("killed");
  ASSERT_EQ(std::system(command(whole, "").c_str()), 0) << bytes_of(whole / "log");
  EXPECT_EQ(last_line(whole), "trained.pt2: val_acc=1.00");

  // All processes of the run, once it has a checkpoint.
  const pid_t process = ::fork();
  if (process == 0) {
    ::setsid();
    ::execl("/bin/sh", "sh", "-c", command(killed, "").c_str(), nullptr);
    ::_exit(127);
  }
  const fs::path last = killed / "levin_logs" / "version_0" / "checkpoints" / "last";
  while (!fs::exists(last) && ::kill(process, 0) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::kill(-process, SIGKILL);
  int status = 0;
  ::waitpid(process, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it ended before it was killed: " << bytes_of(killed / "log");
  ASSERT_FALSE(fs::exists(killed / "trained.pt2"));

  ASSERT_EQ(std::system(command(killed, "--ckpt-path last").c_str()), 0)
      << bytes_of(killed / "log");
  EXPECT_THAT(bytes_of(killed / "log"), HasSubstr("trainer: resumed from"));
  const State one = weights(whole), other = weights(killed);
  ASSERT_EQ(one.values().size(), other.values().size());
  for (const auto& [name, value] : one.values()) {
    EXPECT_TRUE(at::equal(one.tensor(name), other.tensor(name))) << name;
  }
  std::string output;
  EXPECT_EQ(run("from_python.py", "use_net.py '" + killed.string() + "'", &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("tensor([0, 0, 0])"));
}

}  // namespace
}  // namespace levin::test::from_python
