#include "base/json.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace tensortap {
namespace {

template <class T>
std::string text_of(const T& value) {
  JsonWriter writer;
  writer.value(value);
  return writer.text();
}

TEST(JsonWriter, OneLine) {
  JsonWriter writer;
  writer.begin_object().field("name", "fc1").key("steps").begin_array().value(0).value(10);
  writer.end_array().key("none").null().field("done", true).key("extra").raw(R"({"a":1})");
  writer.key("empty").begin_object().end_object().end_object();
  EXPECT_EQ(writer.text(),
            R"({"name":"fc1","steps":[0,10],"none":null,"done":true,"extra":{"a":1},"empty":{}})");
}

TEST(JsonWriter, PrettyPrints) {
  JsonWriter writer(2);
  writer.begin_object().key("a").begin_array().value(1).begin_object().end_object().end_array();
  writer.field("b", false).end_object();
  EXPECT_EQ(writer.text(), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": false\n}");
}

TEST(JsonWriter, Numbers) {
  EXPECT_EQ(text_of(0.1), "0.1");
  EXPECT_EQ(text_of(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(text_of(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(text_of(std::uint32_t{4'000'000'000}), "4000000000");
  EXPECT_EQ(text_of(std::nan("")), R"("NaN")");
  EXPECT_EQ(text_of(-std::nan("")), R"("NaN")");
  EXPECT_EQ(text_of(std::numeric_limits<double>::infinity()), R"("Infinity")");
  EXPECT_EQ(text_of(-std::numeric_limits<double>::infinity()), R"("-Infinity")");
}

TEST(JsonWriter, DoublesReadBackTheSame) {
  for (const double number :
       {1e-310, 4.9e-324, 1.7976931348623157e308, 1.0 / 3.0, 1e22, 123456.0, -0.0, 5e-5}) {
    const double read = nlohmann::json::parse(text_of(number)).get<double>();
    EXPECT_EQ(read, number);
    EXPECT_EQ(std::signbit(read), std::signbit(number));
  }
}

TEST(JsonWriter, EscapesWhatJsonForbids) {
  EXPECT_EQ(text_of("a\"b\\c\n\t\r/"), R"("a\"b\\c\n\t\r/")");
  EXPECT_EQ(text_of(std::string("\0\x1F\x7F", 3)), "\"\\u0000\\u001f\x7F\"");
  JsonWriter writer;
  writer.begin_object().field("k\"", 1).end_object();
  EXPECT_EQ(writer.text(), R"({"k\"":1})");
}

TEST(JsonWriter, KeepsValidUtf8) {
  const std::string text = "\u00E9 \u20AC \U0001F600 \uD7FF \uE000 \U0010FFFF";
  EXPECT_EQ(text_of(text), "\"" + text + "\"");
}

// One U+FFFD for each broken sequence: the examples of the Unicode standard, section 3.9.
TEST(JsonWriter, RepairsBrokenUtf8) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(text_of("a\xFF"), "\"a" + mark + "\"");
  EXPECT_EQ(text_of("\xE2\x82"), "\"" + mark + "\"");         // cut off at the end
  EXPECT_EQ(text_of("\xE2\x82\x41"), "\"" + mark + "A\"");    // cut off by a letter
  EXPECT_EQ(text_of("\xC0\xAF"), "\"" + mark + mark + "\"");  // overlong '/'
  EXPECT_EQ(text_of("\xE0\x9F\xBF"), "\"" + mark + mark + mark + "\"");
  EXPECT_EQ(text_of("\xED\xA0\x80"), "\"" + mark + mark + mark + "\"");  // surrogate
  EXPECT_EQ(text_of("\xF4\x90\x80\x80"), "\"" + mark + mark + mark + mark + "\"");
  EXPECT_EQ(text_of("\xF0\x9F\x98\"\x80"), "\"" + mark + "\\\"" + mark + "\"");
}

}  // namespace
}  // namespace tensortap
