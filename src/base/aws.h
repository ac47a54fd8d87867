// Credentials, region and endpoint of AWS, from where its own tools take them: the environment,
// then ~/.aws/credentials and ~/.aws/config. Thread-safe as long as nobody changes the environment.
// Metadata services of machines are not asked.
#pragma once

#include <string>
#include <string_view>

namespace tensortap {

struct AwsSettings {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // "" for long-lived keys
  std::string region;         // us-east-1 when nothing says otherwise
  std::string endpoint_url;   // without trailing slash; "" = AWS's own
};

// `service` as in AWS_ENDPOINT_URL_<SERVICE>: "SNS". `region` counts before the environment's.
// Throws Error(kNotFound) when there are no credentials, naming where they were looked for.
AwsSettings read_aws_settings(std::string_view service, std::string_view region = "");

}  // namespace tensortap
