#include "base/regex.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

bool search(std::string_view pattern, std::string_view text) { return Regex(pattern).search(text); }

std::string error_of(std::string_view pattern) {
  try {
    const Regex regex(pattern);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(Regex, SearchesAnywhere) {
  EXPECT_TRUE(search("relu", "Net_relu1_output_0"));
  EXPECT_FALSE(search("^relu", "Net_relu1_output_0"));
  EXPECT_TRUE(search("", ""));
  EXPECT_FALSE(search("relu", "ReLU"));
  EXPECT_TRUE(search("(?i)relu", "ReLU"));
}

TEST(Regex, LooksAroundAsPythonDoes) {
  EXPECT_TRUE(search("^(?!gradient).*weight$", "fc.weight"));
  EXPECT_FALSE(search("^(?!gradient).*weight$", "gradient/fc.weight"));
  EXPECT_TRUE(search("(?<=conv)[0-9]+", "conv12"));
  EXPECT_FALSE(search("(?<!conv)1", "conv1"));
}

TEST(Regex, SpellsAsPythonDoes) {
  EXPECT_TRUE(search("(?P<digit>[0-9])x(?P=digit)", "3x3"));
  EXPECT_FALSE(search("(?P<digit>[0-9])x(?P=digit)", "3x5"));
  EXPECT_TRUE(search("a$", "a\n"));
  EXPECT_FALSE(search("a\\Z", "a\n")) << "\\Z is the very end in Python";
  EXPECT_TRUE(search("a\\Z", "a"));
  EXPECT_TRUE(search("^a{,2}$", "aa"));
  EXPECT_FALSE(search("^a{,2}$", "aaa"));
  EXPECT_TRUE(search("[{,2}]", ","));
  EXPECT_TRUE(search("[]{,2}]$", "]"));
  EXPECT_TRUE(search("^\\u00e9\\U0001F600$", "\u00E9\U0001F600"));
}

TEST(Regex, CountsCharactersNotBytes) {
  EXPECT_TRUE(search("^.$", "\u20AC"));
  EXPECT_TRUE(search("^\\w+$", "\u00E9t\u00E9"));
}

TEST(Regex, TakesNamesThatAreNotUtf8) {
  EXPECT_TRUE(search("weight", "\xFF\xFE/weight"));
  EXPECT_FALSE(search("bias", "\xFF\xFE/weight"));
}

TEST(Regex, ErrorsSayWhereAndWhat) {
  EXPECT_EQ(error_of("conv(1"),
            "not a regular expression: missing closing parenthesis at position 6: 'conv(1'");
  EXPECT_EQ(error_of("a{,3}b["),
            "not a regular expression: missing terminating ] for character class at position 7: "
            "'a{,3}b['");
  EXPECT_EQ(error_of("*a"),
            "not a regular expression: quantifier does not follow a repeatable item at position 0: "
            "'*a'");
  EXPECT_NE(error_of(std::string(100'000, 'a')), "");
}

// Exponential for a backtracking matcher; each must give up within the match limit.
TEST(Regex, HostilePatternsReturnQuickly) {
  const std::string text = std::string(5'000, 'a') + "!";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(search("(a+)+$", text));
  EXPECT_FALSE(search("(a|aa)+$", text));
  EXPECT_FALSE(search("(.*a){20}b", text));
  EXPECT_FALSE(search("^(([a-z])+.)+[A-Z]([a-z])+$", text));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Regex, LongNamesDoNotExhaustTheStack) {
  const std::string text(10'000, 'a');
  EXPECT_TRUE(search("^(a|b)*", text));
  EXPECT_TRUE(search("a+$", text));
}

TEST(Regex, IsSharedByThreads) {
  const Regex regex("^layer(?P<n>[0-9]+)\\.weight$");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        EXPECT_TRUE(regex.search("layer" + std::to_string(k) + ".weight"));
        EXPECT_FALSE(regex.search("layer" + std::to_string(k) + ".bias"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Regex, MovesWithItsPattern) {
  Regex first("a");
  Regex second("b");
  second = std::move(first);
  EXPECT_EQ(second.pattern(), "a");
  EXPECT_TRUE(second.search("a"));
}

}  // namespace
}  // namespace tensortap
