// Posts the finding as JSON: as it is, or in the shape that Slack, Discord or Teams shows.
#include <array>

#include <fmt/core.h>

#include "actions/action.h"
#include "actions/delivery.h"
#include "actions/message.h"
#include "actions/registry.h"
#include "actions/secret.h"
#include "base/json.h"
#include "base/text.h"

namespace tensortap {
namespace {

constexpr std::size_t kDiscordLimit = 2000;  // characters; more is refused there

// Cuts in front of a character, never inside one.
std::string shortened(std::string text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = limit - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string plain(const Finding& finding, std::string_view run) {
  return finding_document(finding, run);
}

std::string code_block(const Finding& finding, std::string_view run) {
  std::string text = finding_text(finding, run);
  // Three backticks in a name would end the block.
  for (std::size_t at = 0; (at = text.find("```", at)) != std::string::npos;)
    text.replace(at, 3, "'''");
  return fmt::format("*{}*\n```\n{}```", finding_headline(finding), text);
}

std::string slack(const Finding& finding, std::string_view run) {
  std::string text;
  for (const char c : code_block(finding, run)) {  // Slack's three special characters
    if (c == '&') {
      text += "&amp;";
    } else if (c == '<') {
      text += "&lt;";
    } else if (c == '>') {
      text += "&gt;";
    } else {
      text += c;
    }
  }
  JsonWriter json;
  json.begin_object().field("text", text).end_object();
  return json.text();
}

std::string discord(const Finding& finding, std::string_view run) {
  JsonWriter json;
  json.begin_object().field("content", shortened(code_block(finding, run), kDiscordLimit));
  // A tensor called @everyone wakes nobody.
  json.key("allowed_mentions").begin_object().key("parse").begin_array().end_array().end_object();
  json.end_object();
  return json.text();
}

void text_block(JsonWriter& json, const std::string& text, bool is_title) {
  json.begin_object().field("type", "TextBlock").field("text", text).field("wrap", true);
  is_title ? json.field("weight", "Bolder") : json.field("fontType", "Monospace");
  json.end_object();
}

std::string teams(const Finding& finding, std::string_view run) {
  JsonWriter json;
  json.begin_object().field("type", "message").key("attachments").begin_array().begin_object();
  json.field("contentType", "application/vnd.microsoft.card.adaptive");
  json.key("content").begin_object().field("type", "AdaptiveCard").field("version", "1.4");
  json.key("body").begin_array();
  text_block(json, finding_headline(finding), true);
  text_block(json, finding_text(finding, run), false);
  json.end_array().end_object().end_object().end_array().end_object();
  return json.text();
}

struct Shape {
  std::string_view name;
  std::string (*make)(const Finding& finding, std::string_view run);
};
constexpr Shape kShapes[] = {
    {"plain", plain}, {"slack", slack}, {"discord", discord}, {"teams", teams}};

const Shape& find_shape(const std::string& name) {
  for (const Shape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("action webhook: shape must be plain, slack, discord or teams, not '{}'", name));
}

class Webhook : public Action {
 public:
  explicit Webhook(const Parameters& parameters)
      : shape_(find_shape(parameters.get_string("shape"))) {
    const std::string secret = read_secret(parameters, "url");
    request_.url = parameters.is_set("url") ? parameters.get_string("url") : secret;
    request_.headers = {"Content-Type: application/json"};
    request_.ca_file = parameters.get_string("ca_file");
    request_.timeout_ms = timeout_ms(parameters);
    const bool is_http =
        request_.url.starts_with("https://") || request_.url.starts_with("http://");
    if (!is_http) {
      throw Error(ErrorCode::kInvalidArgument,
                  "action webhook: url, url_env or url_file must give an address that starts with "
                  "https:// or http://");
    }
    whom_ = fmt::format("the webhook {}", redacted_url(request_.url));
  }

  ActionReply run(const Finding& finding, ActionContext& context) override {
    TransferRequest request = request_;
    request.body = shape_.make(finding, context.run);
    request.is_cancelled = context.is_cancelled;
    const TransferAnswer answer = deliver(request, whom_);
    return {fmt::format("{} answered HTTP {}", whom_, answer.status)};
  }

 private:
  const Shape& shape_;
  TransferRequest request_;
  std::string whom_;
};

std::unique_ptr<Action> create(const Parameters& parameters) {
  return std::make_unique<Webhook>(parameters);
}

}  // namespace

const ActionDescriptor& webhook_action() {
  static constexpr std::array kParameters = {
      ParameterDescriptor{.name = "url",
                          .doc =
                              "where to; whoever knows the address of a chat can write to it, so "
                              "url_env or url_file is better"},
      ParameterDescriptor{.name = "url_env", .doc = "environment variable that holds the address"},
      ParameterDescriptor{.name = "url_file", .doc = "file that holds the address"},
      ParameterDescriptor{.name = "shape",
                          .default_value = "plain",
                          .doc = "plain (the finding as JSON), slack, discord or teams"},
      ParameterDescriptor{.name = "ca_file",
                          .doc = "file of certificates to trust instead of the system's"},
      kTimeoutParameter,
  };
  static const ActionDescriptor descriptor{
      .name = "webhook",
      .summary = "Posts the finding as JSON to an address, or to Slack, Discord or Teams.",
      .doc =
          "HTTP POST of `{\"run\": …, \"finding\": {…}}`, or of a message in the shape that the "
          "chat "
          "wants. Connections that fail, time limits and the answers 408, 429 and 5xx are tried "
          "again; other answers are failures. Redirects are not followed. Of the address only the "
          "host is ever shown or stored.",
      .is_slow = true,
      .parameters = kParameters,
      .create = create,
  };
  return descriptor;
}

}  // namespace tensortap
