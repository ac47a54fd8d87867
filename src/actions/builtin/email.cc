// Sends the finding by mail, over SMTP.
#include <algorithm>
#include <array>
#include <ctime>

#include <fmt/core.h>

#include "actions/action.h"
#include "actions/delivery.h"
#include "actions/message.h"
#include "actions/registry.h"
#include "actions/secret.h"
#include "actions/spec.h"
#include "base/clock.h"
#include "base/text.h"

namespace tensortap {
namespace {

constexpr std::size_t kWrappedBytes = 57;  // 76 characters of base64
constexpr std::size_t kWordBytes = 42;     // of an encoded word in a header

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::string wrapped_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += kWrappedBytes) {
    text += base64(bytes.substr(i, kWrappedBytes)) + "\r\n";
  }
  return text;
}

// RFC 2047 wherever it is not plain ASCII; never a line break that was not put here.
std::string header_text(std::string_view text_untrusted) {
  const std::string line = one_line(text_untrusted);
  const bool is_plain = line.size() <= 60 && std::all_of(line.begin(), line.end(), [](char c) {
                          return c >= 0x20 && c < 0x7f;
                        });
  if (is_plain && line.find("=?") == std::string::npos) return line;
  std::string words;
  for (std::size_t i = 0; i < line.size();) {
    std::size_t end = std::min(i + kWordBytes, line.size());
    while (end < line.size() && end > i + 1 &&
           (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80)
      --end;
    words += fmt::format("{}=?UTF-8?B?{}?=", words.empty() ? "" : "\r\n ",
                         base64(std::string_view(line).substr(i, end - i)));
    i = end;
  }
  return words;
}

std::string date_text(std::int64_t time_ns) {
  const std::time_t seconds = time_ns / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {} {} {} {:02}:{:02}:{:02} +0000", kDays[utc.tm_wday], utc.tm_mday,
                     kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

// Nothing that could end the address, or the line it stands on.
std::string checked_address(const std::string& address) {
  const std::size_t at = address.find('@');
  const bool is_plain = std::all_of(address.begin(), address.end(), [](char c) {
    return c > 0x20 && c < 0x7f && std::string_view("<>()[],;:\\\"").find(c) == std::string::npos;
  });
  const bool has_one_at = at != std::string::npos && address.find('@', at + 1) == std::string::npos;
  if (is_plain && has_one_at && at > 0 && at + 1 < address.size()) return address;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("action email: not an address like name@example.org: '{}'", one_line(address)));
}

struct TlsChoice {
  std::string_view name;
  TransferTls tls;
};
constexpr TlsChoice kTlsChoices[] = {
    {"required", TransferTls::kRequired}, {"try", TransferTls::kTry}, {"none", TransferTls::kNone}};

TransferTls parse_tls(const std::string& name) {
  for (const TlsChoice& choice : kTlsChoices) {
    if (choice.name == name) return choice.tls;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("action email: tls must be required, try or none, not '{}'", name));
}

// The server's address as libcurl takes it; the name that follows it greets with ours.
std::string server_url(const std::string& server) {
  const std::string url = server.find("://") == std::string::npos ? "smtp://" + server : server;
  if (url.starts_with("smtp://") || url.starts_with("smtps://")) return url;
  throw Error(
      ErrorCode::kInvalidArgument,
      "action email: server must be HOST, HOST:PORT, smtp://HOST:PORT or smtps://HOST:PORT");
}

// What SageMaker's shape has no words for comes from the environment.
std::string given_or(const Parameters& parameters, std::string_view name, const char* variable) {
  return parameters.is_set(name) ? parameters.get_string(name) : environment(variable);
}

class Email : public Action {
 public:
  explicit Email(const Parameters& parameters) {
    for (const std::string& address : list_of(parameters.get_string("to"))) {
      request_.mail_to.push_back(checked_address(address));
    }
    if (request_.mail_to.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "action email needs to=ADDRESS");
    }
    const std::string server = given_or(parameters, "server", "TENSORTAP_SMTP_SERVER");
    if (server.empty()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "action email needs server=HOST:PORT, or TENSORTAP_SMTP_SERVER in the environment");
    }
    request_.url = server_url(server);
    request_.user = given_or(parameters, "user", "TENSORTAP_SMTP_USER");
    request_.password = read_secret(parameters, "password");
    if (request_.password.empty()) request_.password = environment("TENSORTAP_SMTP_PASSWORD");
    if (request_.user.empty() != request_.password.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "action email: user goes with password_env or password_file, both or neither");
    }
    const std::string tls = given_or(parameters, "tls", "TENSORTAP_SMTP_TLS");
    request_.tls = parse_tls(tls.empty() ? "required" : tls);
    const std::string from = given_or(parameters, "from", "TENSORTAP_SMTP_FROM");
    request_.mail_from = checked_address(from.empty() ? request_.mail_to.front() : from);
    request_.ca_file = parameters.get_string("ca_file");
    request_.timeout_ms = timeout_ms(parameters);
    whom_ = fmt::format("the mail server {}", redacted_url(request_.url));
  }

  ActionReply run(const Finding& finding, ActionContext& context) override {
    TransferRequest request = request_;
    request.body = mail(finding, context.run);
    request.is_cancelled = context.is_cancelled;
    deliver(request, whom_);
    return {fmt::format("{} took the mail for {}", whom_, join(request.mail_to, ", "))};
  }

 private:
  std::string mail(const Finding& finding, std::string_view run) const {
    const std::int64_t now_ns = wall_time_ns();
    const std::string domain = request_.mail_from.substr(request_.mail_from.find('@') + 1);
    return fmt::format(
        "Date: {}\r\nFrom: {}\r\nTo: {}\r\nSubject: {}\r\nMessage-ID: <{}.{}@{}>\r\n"
        "Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"
        "Content-Type: text/plain; charset=UTF-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        date_text(now_ns), request_.mail_from, join(request_.mail_to, ",\r\n "),
        header_text(finding_headline(finding)), now_ns, finding.step, domain,
        wrapped_base64(finding_text(finding, run)));
  }

  TransferRequest request_;
  std::string whom_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<Email>(parameters);
}

}  // namespace

const ActionDescriptor& email_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{
          .name = "to", .type = ParameterType::kList, .doc = "one or more addresses"},
      ParameterDescriptor{.name = "server",
                          .doc = "HOST:PORT, smtp://HOST:PORT or smtps://HOST:PORT (encrypted from "
                                 "the start); unset: TENSORTAP_SMTP_SERVER of the environment"},
      ParameterDescriptor{.name = "from", .doc = "the sender's address; unset: the first of `to`"},
      ParameterDescriptor{.name = "user", .doc = "name to log in with"},
      ParameterDescriptor{.name = "password_env",
                          .doc = "environment variable that holds the password"},
      ParameterDescriptor{.name = "password_file", .doc = "file that holds the password"},
      ParameterDescriptor{
          .name = "tls",
          .doc = "of smtp://: required (STARTTLS, or no mail; the default), try or none"},
      ParameterDescriptor{.name = "ca_file",
                          .doc = "file of certificates to trust instead of the system's"},
      kTimeoutParameter,
  };
  static const ActionDescriptor descriptor{
      .name = "email",
      .summary = "Sends the finding by mail.",
      .doc =
          "One mail over SMTP, with the finding's sentence and numbers as plain text. The password "
          "comes from the environment or a file and is neither logged nor stored. No connection, "
          "time limits and temporary refusals (4xx) are tried again. What is not given comes from "
          "the environment: TENSORTAP_SMTP_SERVER, _USER, _PASSWORD, _FROM and _TLS; so "
          "SageMaker's "
          "shape, `{\"name\": \"email\", \"endpoint\": \"a@example.org\"}`, works too.",
      .is_slow = true,
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
