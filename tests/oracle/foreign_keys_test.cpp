// Every key that the Python packages of this version know of a file is in one of levin's lists.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/oracle/python.h"

namespace {

namespace fs = std::filesystem;

class ForeignKeys : public levin::test::PythonTest {};

TEST_F(ForeignKeys, AreAllInALevinList) {
  std::string output;
  EXPECT_EQ(run("foreign_keys.py", "", &output), 0) << output;
  EXPECT_NE(output.find(" keys, 0 unclassified"), std::string::npos) << output;
}

TEST_F(ForeignKeys, OneThatIsTakenOutOfItsListIsNamed) {
  const fs::path models = fs::path(levin::test::source_dir()) / "levin/models";
  const fs::path root = file("doctored");
  fs::create_directories(root / "levin");
  fs::copy(models, root / "levin/models", fs::copy_options::recursive);
  const auto take_out = [&](const std::string& source, const std::string& key) {
    std::string text = levin::test::bytes_of(root / "levin/models" / source);
    const size_t at = text.find(" " + key);
    EXPECT_NE(at, std::string::npos) << key;
    std::ofstream(root / "levin/models" / source) << text.replace(at, key.size() + 1, "");
  };
  take_out("families/known_keys.h", "is_causal");
  take_out("generate/settings.cpp", "renormalize_logits");
  std::string output;
  EXPECT_EQ(run("foreign_keys.py", "--root '" + root.string() + "'", &output), 1) << output;
  EXPECT_NE(output.find("config.json: llama: is_causal is in no list"), std::string::npos)
      << output;
  EXPECT_NE(output.find("generation_config.json: renormalize_logits is in no list"),
            std::string::npos)
      << output;
}

}  // namespace
