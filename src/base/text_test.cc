#include "base/text.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace tensortap {
namespace {

using Strings = std::vector<std::string>;

TEST(Text, Trim) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n "), "");
}

TEST(Text, SplitListKeepsBracketsTogether) {
  EXPECT_EQ(split_list("a{1,3}, b"), (Strings{"a{1,3}", "b"}));
  EXPECT_EQ(split_list(" relu , (a,b)|[c,d] ,, x "), (Strings{"relu", "(a,b)|[c,d]", "x"}));
  EXPECT_EQ(split_list("[[1,2],[3]],4"), (Strings{"[[1,2],[3]]", "4"}));
  EXPECT_EQ(split_list("a;b,c", ';'), (Strings{"a", "b,c"}));
  EXPECT_EQ(split_list(" , "), Strings{});
}

TEST(Text, SplitListReadsBracketsInRegexes) {
  EXPECT_EQ(split_list(R"(a\(b,c\),d)"), (Strings{R"(a\(b)", R"(c\))", "d"}));
  EXPECT_EQ(split_list("[(],b"), (Strings{"[(]", "b"}));
  EXPECT_EQ(split_list("a),b"), (Strings{"a)", "b"}));
  EXPECT_EQ(split_list("a\\"), (Strings{"a\\"}));
}

TEST(Text, Join) {
  EXPECT_EQ(join(Strings{"a", "", "b"}, ", "), "a, , b");
  EXPECT_EQ(join(Strings{}, ", "), "");
}

TEST(Text, ParseInt) {
  EXPECT_EQ(parse_int(" 42 "), 42);
  EXPECT_EQ(parse_int("+7"), 7);
  EXPECT_EQ(parse_int("-10.0"), -10);
  EXPECT_EQ(parse_int("1e3"), 1000);
  EXPECT_EQ(parse_int("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const char* bad : {"", " ", "+", "+-1", "10.5", "10 0", "0x10", "ten", "nan", "inf", "1e19",
                          "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  }
}

TEST(Text, ParseDouble) {
  EXPECT_EQ(parse_double(" 1e-3 "), 0.001);
  EXPECT_EQ(parse_double("+.5"), 0.5);
  EXPECT_EQ(parse_double("-Inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(parse_double("NaN").value()));
  for (const char* bad : {"", "1,5", "1.0f", "--1", "one", "1 2"}) {
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
  }
}

TEST(Text, ParseBool) {
  for (const char* yes : {"true", "True", " TRUE ", "1", "yes"}) EXPECT_EQ(parse_bool(yes), true);
  for (const char* no : {"false", "False", "0", "No"}) EXPECT_EQ(parse_bool(no), false);
  for (const char* bad : {"", "2", "on", "truee"}) EXPECT_EQ(parse_bool(bad), std::nullopt) << bad;
}

TEST(Text, NearNamesPutsTheNearestFirst) {
  const Strings names = {"exploding_tensor", "vanishing_gradient", "loss_not_decreasing",
                         "vanishing_gradients"};
  EXPECT_EQ(near_names("VanishingGradient", names),
            (Strings{"vanishing_gradient", "vanishing_gradients"}));
  EXPECT_EQ(near_names("loss", names), Strings{"loss_not_decreasing"});
  EXPECT_EQ(near_names("exploding_tensro", names), Strings{"exploding_tensor"});
  EXPECT_EQ(near_names("overfit", names), Strings{});
  EXPECT_EQ(near_names("vanishing_gradient", names, 1), Strings{"vanishing_gradient"});
}

// A single letter is part of nearly every name, and one edit away from every other letter.
TEST(Text, NearNamesOfShortTexts) {
  EXPECT_EQ(near_names("x", Strings{"y", "max", "x_out"}), Strings{});
  EXPECT_EQ(near_names("mux", Strings{"max", "min"}), Strings{"max"});
  EXPECT_EQ(near_names("chekc", Strings{"check", "show"}), Strings{"check"});
  EXPECT_EQ(near_names("", Strings{"max"}), Strings{});
}

TEST(Text, DidYouMean) {
  EXPECT_EQ(did_you_mean("men", Strings{"mean", "max"}), " (did you mean 'mean'?)");
  EXPECT_EQ(did_you_mean("fc.weight", Strings{"fc1.weight", "fc2.weight", "fc3.weight"}),
            " (did you mean 'fc1.weight', 'fc2.weight' or 'fc3.weight'?)");
  EXPECT_EQ(did_you_mean("zzz", Strings{"mean"}), "");
}

}  // namespace
}  // namespace tensortap
