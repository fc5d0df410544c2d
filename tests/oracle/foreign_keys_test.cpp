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
  const fs::path levin = fs::path(levin::test::source_dir()) / "levin";
  const fs::path root = file("doctored");
  for (const char* room : {"models", "text"}) {
    fs::create_directories(root / "levin" / room);
    fs::copy(levin / room, root / "levin" / room, fs::copy_options::recursive);
  }
  const auto take_out = [&](const std::string& source, const std::string& key) {
    std::string text = levin::test::bytes_of(root / "levin" / source);
    const size_t at = text.find(" " + key);
    EXPECT_NE(at, std::string::npos) << key;
    std::ofstream(root / "levin" / source) << text.replace(at, key.size() + 1, "");
  };
  take_out("models/families/known_keys.h", "is_causal");
  take_out("models/generate/settings.cpp", "renormalize_logits");
  take_out("models/adapters/config.cpp", "corda_config");
  take_out("text/reading/known_fields.cpp", "split_special_tokens");
  std::string output;
  EXPECT_EQ(run("foreign_keys.py", "--root '" + root.string() + "'", &output), 1) << output;
  EXPECT_NE(output.find("config.json: llama: is_causal is in no list"), std::string::npos)
      << output;
  EXPECT_NE(output.find("generation_config.json: renormalize_logits is in no list"),
            std::string::npos)
      << output;
  EXPECT_NE(output.find("adapter_config.json: corda_config is in no list"), std::string::npos)
      << output;
  EXPECT_NE(output.find("tokenizer_config.json: split_special_tokens is in no list"),
            std::string::npos)
      << output;
}

}  // namespace
