#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "rules/expression/expression.h"
#include "rules/parameters.h"
#include "rules/registry.h"

namespace tensortap::expression {
namespace {

std::string error_of(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(ExpressionParser, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(
      error_of("abs_mean(gradients) > 10 foor 3 steps"),
      "at character 26 ('foor'): expected an operator, 'and', 'or', 'for N steps' or the end");
  EXPECT_EQ(error_of("abs_meen(gradients) > 10"),
            "at character 1 ('abs_meen'): no statistic and no function has this name (did you mean "
            "'abs_mean', 'abs_min' or 'abs'?)");
  EXPECT_EQ(error_of("loss >"),
            "at character 7 (the end): expected a number, a collection, a tensor, or a regex in "
            "quotes");
  EXPECT_EQ(error_of("loss > 'abc"), "at character 8 ('''): this quote is never closed");
  EXPECT_EQ(error_of("loss + 1"),
            "at character 1 ('loss'): expected a comparison such as 'loss > 10'");
  EXPECT_EQ(error_of("(loss > 1) + 2 > 3"),
            "at character 1 ('('): expected a number, not a comparison");
  EXPECT_EQ(error_of("loss > 1 and 3"),
            "at character 14 ('3'): expected a comparison such as 'loss > 10'");
  EXPECT_EQ(error_of("loss > min(loss, 0 steps)"),
            "at character 18 ('0'): expected a number of steps from 1 to 10000");
  EXPECT_EQ(error_of("loss > min(loss, 5)"), "at character 19 (')'): expected 'steps'");
  EXPECT_EQ(error_of("loss > 1 for 2.5 steps"),
            "at character 14 ('2.5'): expected a number of steps from 1 to 10000");
  EXPECT_EQ(error_of("1 > 2"), "at character 1 ('1'): no tensor stands in this expression");
  EXPECT_EQ(error_of("loss $ 1"), "at character 6 ('$'): this character has no meaning here");
  EXPECT_EQ(error_of("max_of(l2(a) + l2(b)) > 1"),
            "at character 1 ('max_of'): its parentheses must hold exactly one set of tensors");
  EXPECT_EQ(error_of("loss > median(loss)"),
            "at character 15 ('loss'): median takes an expression, a comma and a number of steps");
}

TEST(ExpressionParser, HostileTextEndsInAnError) {
  EXPECT_THAT(error_of(std::string(5000, '(')), testing::HasSubstr("at most 4096 characters"));
  EXPECT_THAT(error_of(std::string(4000, '(')), testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(std::string(4000, '-') + "a > 1"), testing::HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of("a > 1" + std::string(1000, ' ') + "\x01"),
              testing::HasSubstr("no meaning"));
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("__import__('os').system('x') > 1"), "");
}

TEST(ExpressionParser, NamesHoldSlashesAndDots) {
  const Expression parsed = parse("scalar/train/kl > 3 * Net_fc1.weight / learning_rate");
  ASSERT_EQ(parsed.selections.size(), 3u);
  EXPECT_EQ(parsed.selections[0].text, "scalar/train/kl");
  EXPECT_EQ(parsed.selections[1].text, "Net_fc1.weight");
  EXPECT_EQ(parsed.selections[2].text, "learning_rate");
}

TEST(ExpressionParser, AComparisonIsARuleSpecification) {
  const RuleSpec spec = parse_rule_spec(" loss > 1.2 * min(loss, 100 steps) ");
  EXPECT_EQ(spec.name, "Expression");
  EXPECT_EQ(spec.parameters.at("expression"), "loss > 1.2 * min(loss, 100 steps)");
  const RuleSpec named =
      parse_rule_spec("Expression:expression=max(loss, 5 steps) >= 3 and a < 2,severity=info");
  EXPECT_EQ(named.parameters.at("expression"), "max(loss, 5 steps) >= 3 and a < 2");
  EXPECT_EQ(named.parameters.at("severity"), "info");
}

}  // namespace
}  // namespace tensortap::expression
