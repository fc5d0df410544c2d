// find_executable_batch_size tries the sizes that Accelerate's function tries.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/accelerator/processes.h"
#include "levin/base/error.h"
#include "tests/oracle/python.h"

namespace executable_batch_size {
namespace {

using Json = nlohmann::json;

class ExecutableBatchSize : public levin::test::PythonTest {};

TEST_F(ExecutableBatchSize, TriesTheSizesOfAccelerate) {
  std::string said;
  ASSERT_EQ(run("executable_batch_size.py", "'" + file("cases.json").string() + "'", &said), 0)
      << said;
  const Json cases = Json::parse(levin::test::bytes_of(file("cases.json")));
  EXPECT_EQ(cases.size(), 128U);
  for (const Json& wanted : cases) {
    const std::string reduce = wanted.at("reduce");
    levin::ReduceBatchSize own;
    if (reduce == "half") own = [](int64_t size) { return size / 2; };
    if (reduce == "minus3") own = [](int64_t size) { return std::max<int64_t>(0, size - 3); };
    std::vector<int64_t> tried;
    int64_t found = 0;
    try {
      found = levin::find_executable_batch_size(
          wanted.at("first").get<int64_t>(),
          [&](int64_t size) {
            tried.push_back(size);
            if (size > wanted.at("fits").get<int64_t>()) {
              throw std::runtime_error("DefaultCPUAllocator: can't allocate memory: 1 bytes.");
            }
            return size;
          },
          own);
    } catch (const levin::Error& error) {
      EXPECT_EQ(error.id(), "accelerator.executable_batch_size") << error.what();
    }
    EXPECT_EQ(tried, wanted.at("tried").get<std::vector<int64_t>>()) << wanted;
    EXPECT_EQ(found, wanted.at("found").get<int64_t>()) << wanted;
  }
}

}  // namespace
}  // namespace executable_batch_size
