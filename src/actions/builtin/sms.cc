// Sends the finding to a telephone, through Amazon's SNS.
#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/core.h>

#include "actions/action.h"
#include "actions/delivery.h"
#include "actions/message.h"
#include "actions/registry.h"
#include "base/aws.h"

namespace tensortap {
namespace {

constexpr std::size_t kMaxBytes = 140;  // of one message that is not charged as several

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    const bool is_plain = std::isalnum(code) != 0 || c == '-' || c == '_' || c == '.' || c == '~';
    encoded += is_plain ? std::string(1, c) : fmt::format("%{:02X}", code);
  }
  return encoded;
}

// Whole characters, as many as fit.
std::string short_message(const Finding& finding) {
  std::string text = fmt::format("{}: {}", finding_headline(finding), one_line(finding.message));
  if (text.size() <= kMaxBytes) return text;
  std::size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::string checked_number(const std::string& number) {
  const bool is_right =
      number.size() >= 2 && number.size() <= 16 && number.front() == '+' &&
      std::all_of(number.begin() + 1, number.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (is_right) return number;
  throw Error(ErrorCode::kInvalidArgument,
              "action sms needs phone=+NUMBER, a plus sign and up to 15 digits");
}

class Sms : public Action {
 public:
  explicit Sms(const Parameters& parameters)
      : phone_(checked_number(parameters.get_string("phone"))) {
    const AwsSettings aws = read_aws_settings("SNS", parameters.get_string("region"));
    request_.url =
        (aws.endpoint_url.empty() ? fmt::format("https://sns.{}.amazonaws.com", aws.region)
                                  : aws.endpoint_url) +
        "/";
    request_.user = aws.access_key;
    request_.password = aws.secret_key;
    request_.aws_signature = fmt::format("aws:amz:{}:sns", aws.region);
    request_.headers = {"Content-Type: application/x-www-form-urlencoded; charset=utf-8"};
    if (!aws.session_token.empty()) {
      request_.headers.push_back("X-Amz-Security-Token: " + aws.session_token);
    }
    request_.timeout_ms = timeout_ms(parameters);
    whom_ = fmt::format("SNS in {}", aws.region);
  }

  ActionReply run(const Finding& finding, ActionContext& context) override {
    TransferRequest request = request_;
    request.body = fmt::format("Action=Publish&Version=2010-03-31&PhoneNumber={}&Message={}",
                               percent_encoded(phone_), percent_encoded(short_message(finding)));
    request.is_cancelled = context.is_cancelled;
    deliver(request, whom_);
    return {fmt::format("{} took the message for {}", whom_, phone_)};
  }

 private:
  std::string phone_;
  TransferRequest request_;
  std::string whom_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<Sms>(parameters);
}

}  // namespace

const ActionDescriptor& sms_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{.name = "phone", .doc = "number with country code: +15551234567"},
      ParameterDescriptor{.name = "region",
                          .doc = "AWS region; unset: AWS_REGION, the profile's, or us-east-1"},
      kTimeoutParameter,
  };
  static const ActionDescriptor descriptor{
      .name = "sms",
      .summary = "Sends the finding to a telephone, through Amazon SNS.",
      .doc =
          "SNS `Publish` to a telephone number, signed with the credentials that AWS's own tools "
          "would use: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (AWS_SESSION_TOKEN), or the "
          "profile AWS_PROFILE of ~/.aws/credentials. AWS_ENDPOINT_URL_SNS or AWS_ENDPOINT_URL "
          "names another server. SageMaker's shape is accepted: "
          "`{\"name\": \"sms\", \"endpoint\": \"+15551234567\"}`.",
      .is_slow = true,
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
