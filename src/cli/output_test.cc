#include "cli/output.h"

#include <cmath>
#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

namespace tensortap::cli {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(EscapeTest, MakesControlCharactersVisible) {
  EXPECT_EQ(escape("a\x1b[31mb\nc\td\x7f"), "a\\x1b[31mb\\nc\\td\\x7f");
  EXPECT_EQ(escape(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escape("\xC2\x9B"
                   "2J"),
            "\\x9b2J");  // the one-character form of ESC [
}

TEST(EscapeTest, KeepsOtherText) {
  EXPECT_EQ(escape("größe/\xE2\x88\x87w \xC2\xA0"), "größe/\xE2\x88\x87w \xC2\xA0");
  EXPECT_EQ(escape("\xC2"), "\xC2");
}

TEST(ShortNumberTest, KeepsCountsWholeAndCutsTheRest) {
  EXPECT_EQ(short_number(0.0), "0");
  EXPECT_EQ(short_number(1234567.0), "1234567");
  EXPECT_EQ(short_number(-3.0), "-3");
  EXPECT_EQ(short_number(1e12), "1e+12");
  EXPECT_EQ(short_number(0.123456789), "0.123457");
  EXPECT_EQ(short_number(1.5e-9), "1.5e-09");
  EXPECT_EQ(short_number(kNan), "nan");
  EXPECT_EQ(short_number(-kNan), "nan");
  EXPECT_EQ(short_number(-kInf), "-inf");
}

TEST(ExactNumberTest, ReadsBackAsTheSameDouble) {
  for (const double value : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -2.5}) {
    EXPECT_EQ(std::strtod(exact_number(value).c_str(), nullptr), value) << exact_number(value);
  }
  EXPECT_EQ(exact_number(0.1), "0.1");
}

TEST(TextForPeopleTest, NumbersAndSizes) {
  EXPECT_EQ(with_separators(0), "0");
  EXPECT_EQ(with_separators(999), "999");
  EXPECT_EQ(with_separators(1000), "1,000");
  EXPECT_EQ(with_separators(18446744073709551615u), "18,446,744,073,709,551,615");
  EXPECT_EQ(plural(1, "step"), "1 step");
  EXPECT_EQ(plural(0, "step"), "0 steps");
  EXPECT_EQ(plural(1200, "step"), "1,200 steps");
}

TEST(WrapTest, FillsParagraphsAndKeepsExamples) {
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree\n");
  EXPECT_EQ(wrap("one\ntwo\nthree\n\nfour\n", 9), "one two\nthree\n\nfour\n");
  EXPECT_EQ(wrap("a\n  keep   this  as it is\nb", 4), "a\n  keep   this  as it is\nb\n");
  EXPECT_EQ(wrap("list:\n- one\n- two\n  deep"), "list:\n- one\n- two\n  deep\n");
  EXPECT_EQ(wrap("unbreakable", 4), "unbreakable\n");
  EXPECT_EQ(wrap(""), "");
}

TEST(SparklineTest, SpansTheRange) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(std::vector<double>{5, 5, 5}), "▁▁▁");
  EXPECT_EQ(sparkline(std::vector<double>{1}), "");
}

TEST(SparklineTest, AveragesToTheWidthAndMarksWhatIsNotFinite) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 0, 2, 4}, 2), "▁█");
  EXPECT_EQ(sparkline(std::vector<double>{0, kNan, kInf, 1}), "▁··█");
  EXPECT_EQ(sparkline(std::vector<double>{-1.7e308, 1.7e308}), "▁█");
}

TEST(TableTest, AlignsByWidthOnTheTerminal) {
  Table table;
  table.add_column("name");
  table.add_column("n", Table::Align::kRight);
  table.add_row({"größe", "7"});
  table.add_row({"x", "1234"});
  EXPECT_EQ(table.text(), "name      n\ngröße     7\nx      1234\n");
}

}  // namespace
}  // namespace tensortap::cli
