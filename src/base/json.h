// Writes JSON text, for files of a run and for `--json` answers. Reading is done with nlohmann/json
// inside the .cc that needs it. Non-finite numbers become the strings "NaN", "Infinity",
// "-Infinity" (JSON has no literal for them); invalid UTF-8 becomes U+FFFD. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

class JsonWriter {
 public:
  // indent_spaces 0: one line; otherwise pretty-printed.
  explicit JsonWriter(int indent_spaces = 0) : indent_spaces_(indent_spaces) {}

  JsonWriter& begin_object();
  JsonWriter& end_object();
  JsonWriter& begin_array();
  JsonWriter& end_array();
  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);  // shortest form that reads back the same
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(std::uint64_t number);
  JsonWriter& value(std::uint32_t number) { return value(static_cast<std::uint64_t>(number)); }
  JsonWriter& value(int number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(bool truth);
  JsonWriter& null();
  // Text that is JSON already (a nested document), copied as it is.
  JsonWriter& raw(std::string_view json);

  // key(name).value(v)
  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    return key(name).value(v);
  }

  const std::string& text() const { return text_; }

 private:
  void before_value();
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void newline();

  int indent_spaces_;
  std::string text_;
  std::vector<bool> has_items_;  // one per open container
  bool after_key_ = false;
};

}  // namespace tensortap
