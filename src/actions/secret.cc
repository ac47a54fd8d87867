#include "actions/secret.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/core.h>

#include "base/error.h"

namespace tensortap {
namespace {

constexpr std::size_t kMaxFileBytes = 65'536;

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string read_text_file(std::string path) {
  if (path.starts_with("~/")) path = environment("HOME") + path.substr(1);
  std::error_code ignored;
  // A folder, a pipe or a device gives nothing, waits for ever or never ends.
  if (!std::filesystem::is_regular_file(path, ignored)) {
    throw Error(ErrorCode::kNotFound, fmt::format("there is no such file: {}", path));
  }
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kNotFound, fmt::format("cannot be read: {}", path));
  std::string content(kMaxFileBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > kMaxFileBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("holds more than {} bytes: {}", kMaxFileBytes, path));
  }
  return content;
}

std::string read_secret(const Parameters& parameters, std::string_view name) {
  const std::string variable = parameters.get_string(fmt::format("{}_env", name));
  const std::string file = parameters.get_string(fmt::format("{}_file", name));
  if (!variable.empty() && !file.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("give one of {0}_env and {0}_file, not both", name));
  }
  std::string secret;
  if (!variable.empty()) {
    secret = environment(variable.c_str());
    if (secret.empty()) {
      throw Error(ErrorCode::kNotFound,
                  fmt::format("{}_env: the environment has no variable {}", name, variable));
    }
  } else if (!file.empty()) {
    secret = read_text_file(file);
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    if (secret.empty()) {
      throw Error(ErrorCode::kNotFound, fmt::format("{}_file is empty: {}", name, file));
    }
  }
  return secret;
}

}  // namespace tensortap
