// One request over the network and its answer: HTTP(S), or a mail over SMTP(S). Through libcurl,
// which is loaded when the first request is made: a training that sends nothing never has it in its
// process. Used by actions/builtin. Thread-safe; each call blocks at most its time limit.
//
// Redirects are not followed: what is posted may be secret and goes to the address that was given,
// nowhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensortap {

enum class TransferTls : std::uint8_t {
  kNone,      // in the clear
  kTry,       // SMTP: encrypted when the server offers it
  kRequired,  // SMTP: encrypted or not at all. An https:// or smtps:// address is so anyway.
};

struct TransferRequest {
  std::string url;                   // http://, https://, smtp://, smtps://
  std::vector<std::string> headers;  // "Name: value", of HTTP
  std::string body;                  // HTTP: posted; SMTP: the mail with its header
  std::string user;
  std::string password;
  std::string aws_signature;  // "aws:amz:REGION:SERVICE": sign with user and password (SigV4)
  std::string mail_from;      // SMTP: plain addresses
  std::vector<std::string> mail_to;
  TransferTls tls = TransferTls::kNone;
  std::string ca_file;  // certificates to trust instead of the system's
  std::int64_t timeout_ms = 10'000;
  const std::atomic<bool>* is_cancelled = nullptr;  // asked about once a second
};

struct TransferAnswer {
  bool is_complete = false;   // the server answered; see status
  bool is_transient = false;  // when not complete: trying again may help
  long status = 0;            // HTTP's or SMTP's, 0 when there was none
  std::string body;           // at most the first 64 KiB
  std::string error;          // when not complete: one line, without the URL's path
};

// Does not throw for anything that the network does; throws Error(kUnsupported) when libcurl cannot
// be loaded.
TransferAnswer transfer(const TransferRequest& request);

// "https://hooks.example.com/services/T0/B0/XYZ?k=v" -> "https://hooks.example.com/…": what may be
// shown of an address whose path is a secret. User and password go too.
std::string redacted_url(std::string_view url);

}  // namespace tensortap
