#include "actions/secret.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/core.h>

#include "base/error.h"

namespace tensortap {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string read_text_file(std::string path) {
  if (path.starts_with("~/")) path = environment("HOME") + path.substr(1);
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kNotFound, fmt::format("cannot be read: {}", path));
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
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
