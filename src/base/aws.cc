#include "base/aws.h"

#include <cstdlib>
#include <fstream>
#include <map>

#include <fmt/core.h>

#include "base/error.h"
#include "base/text.h"

namespace tensortap {
namespace {

std::string environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? value : "";
}

std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return "";
}

std::string file_path(const char* variable, const char* name) {
  const std::string given = environment(variable);
  return given.empty() ? environment("HOME") + "/.aws/" + name : given;
}

// The keys of one section of an INI file; none when there is no such file.
std::map<std::string, std::string> read_section(const std::string& path, std::string_view section) {
  std::map<std::string, std::string> values;
  std::ifstream file(path);
  bool is_wanted = false;
  for (std::string line; std::getline(file, line);) {
    const std::string_view text = trim(line);
    if (text.empty() || text.front() == '#' || text.front() == ';') continue;
    if (text.front() == '[') {
      is_wanted = trim(text.substr(1, text.find(']') - 1)) == section;
      continue;
    }
    const std::size_t equals = text.find('=');
    if (!is_wanted || equals == std::string_view::npos) continue;
    values.emplace(trim(text.substr(0, equals)), trim(text.substr(equals + 1)));
  }
  return values;
}

}  // namespace

AwsSettings read_aws_settings(std::string_view service, std::string_view region) {
  const std::string profile = first_of({environment("AWS_PROFILE"), "default"});
  const std::string credentials_path = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  auto config = read_section(file_path("AWS_CONFIG_FILE", "config"),
                             profile == "default" ? profile : "profile " + profile);
  AwsSettings settings;
  settings.access_key = environment("AWS_ACCESS_KEY_ID");
  settings.secret_key = environment("AWS_SECRET_ACCESS_KEY");
  settings.session_token = environment("AWS_SESSION_TOKEN");
  if (settings.access_key.empty() || settings.secret_key.empty()) {
    auto stored = read_section(credentials_path, profile);
    settings.access_key = stored["aws_access_key_id"];
    settings.secret_key = stored["aws_secret_access_key"];
    settings.session_token = stored["aws_session_token"];
  }
  if (settings.access_key.empty() || settings.secret_key.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("no AWS credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
                    "in the environment nor the profile '{}' in {}",
                    profile, credentials_path));
  }
  settings.region = first_of({std::string(region), environment("AWS_REGION"),
                              environment("AWS_DEFAULT_REGION"), config["region"], "us-east-1"});
  settings.endpoint_url = first_of({environment(fmt::format("AWS_ENDPOINT_URL_{}", service)),
                                    environment("AWS_ENDPOINT_URL"), config["endpoint_url"]});
  while (settings.endpoint_url.ends_with('/')) settings.endpoint_url.pop_back();
  return settings;
}

}  // namespace tensortap
