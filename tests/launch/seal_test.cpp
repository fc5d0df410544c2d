#include "levin/launch/rendezvous/seal.h"

#include <gtest/gtest.h>

#include "levin/comm/environment/siphash.h"
#include "levin/comm/environment/token.h"

namespace levin::launch {
namespace {

// Of the reference implementation: the key 00 01 .. 0f, the text 00 01 .. of so many bytes.
TEST(Seal, IsSipHash) {
  const std::array<uint64_t, 2> key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  EXPECT_EQ(comm::siphash(key, ""),
            (std::array<uint64_t, 2>{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(comm::siphash(key, std::string(1, '\0')),
            (std::array<uint64_t, 2>{0x44af996bd8c187da, 0x45fc229b11597634}));
}

TEST(Seal, OpensWithTheSameTokenAndKeyAlone) {
  const std::string token = comm::new_token();
  const std::string word = sealed(token, "stop/0", "a word");
  EXPECT_EQ(opened(token, "stop/0", word), "a word");
  EXPECT_FALSE(opened(token, "stop/1", word).has_value());
  EXPECT_FALSE(opened(comm::new_token(), "stop/0", word).has_value());
  EXPECT_FALSE(opened(token, "stop/0", word + " more").has_value());
  EXPECT_FALSE(opened(token, "stop/0", "a word").has_value());
  EXPECT_FALSE(opened(token, "stop/0", "").has_value());
  EXPECT_EQ(opened("", "stop/0", sealed("", "stop/0", "plain")), "plain");
}

TEST(Token, IsAnotherEachTime) {
  const std::string token = comm::new_token();
  EXPECT_EQ(token.size(), 32U);
  EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(token, comm::new_token());
  EXPECT_TRUE(comm::same_token("abc", "abc"));
  EXPECT_FALSE(comm::same_token("abc", "abd"));
  EXPECT_FALSE(comm::same_token("abc", "ab"));
}

}  // namespace
}  // namespace levin::launch
