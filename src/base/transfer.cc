#include "base/transfer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "base/curl_library.h"

namespace tensortap {
namespace {

constexpr std::size_t kMaxAnswerBytes = 64u << 10;

class StringList {
 public:
  explicit StringList(const CurlLibrary& curl) : curl_(curl) {}
  ~StringList() { curl_.slist_free_all(list_); }
  StringList(const StringList&) = delete;
  StringList& operator=(const StringList&) = delete;

  void add(const std::string& text) { list_ = curl_.slist_append(list_, text.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  const CurlLibrary& curl_;
  curl_slist* list_ = nullptr;
};

// What libcurl's callbacks see.
struct Exchange {
  const TransferRequest& request;
  std::size_t sent = 0;
  std::string received;
};

std::size_t give_body(char* buffer, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string& body = exchange.request.body;
  const std::size_t length = std::min(size * count, body.size() - exchange.sent);
  std::memcpy(buffer, body.data() + exchange.sent, length);
  exchange.sent += length;
  return length;
}

std::size_t take_answer(char* data, std::size_t size, std::size_t count, void* user) {
  std::string& received = static_cast<Exchange*>(user)->received;
  const std::size_t room = kMaxAnswerBytes - std::min(kMaxAnswerBytes, received.size());
  received.append(data, std::min(size * count, room));
  return size * count;
}

int ask_to_go_on(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const std::atomic<bool>* is_cancelled = static_cast<Exchange*>(user)->request.is_cancelled;
  return is_cancelled != nullptr && *is_cancelled ? 1 : 0;
}

// Mistakes of the configuration stay mistakes; everything else may pass.
bool is_transient(CURLcode code, long status) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_USE_SSL_FAILED:
    case CURLE_LOGIN_DENIED:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_REMOTE_ACCESS_DENIED:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_NOT_BUILT_IN:
    case CURLE_UNKNOWN_OPTION:
      return false;
    default:
      return status < 500 || status > 599;  // an SMTP server's "no"
  }
}

// One request on one handle; the handle and everything it points to live together.
class Call {
 public:
  explicit Call(const TransferRequest& request)
      : curl_(curl_library()),
        handle_(curl_.easy_init(), curl_.easy_cleanup),
        headers_(curl_),
        recipients_(curl_),
        exchange_{request, 0, {}} {}

  TransferAnswer perform() {
    prepare();
    const CURLcode code = curl_.easy_perform(handle_.get());
    TransferAnswer answer;
    curl_.easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &answer.status);
    answer.body = std::move(exchange_.received);
    answer.is_complete = code == CURLE_OK;
    if (answer.is_complete) return answer;
    answer.is_transient = is_transient(code, answer.status);
    answer.error = error_[0] != '\0' ? error_.data() : curl_.easy_strerror(code);
    if (code == CURLE_ABORTED_BY_CALLBACK) answer.error = "given up, since the training ended";
    return answer;
  }

 private:
  template <class Value>
  void set(CURLoption option, Value value) {
    curl_.easy_setopt(handle_.get(), option, value);
  }
  void set_text(CURLoption option, const std::string& text) {
    if (!text.empty()) set(option, text.c_str());
  }

  void prepare() {
    const TransferRequest& request = exchange_.request;
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);  // the process is somebody else's
#if LIBCURL_VERSION_NUM >= 0x075700
    set(CURLOPT_QUICK_EXIT, 1L);  // no waiting for a name server at the end
#endif
    set(CURLOPT_ERRORBUFFER, error_.data());
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout_ms));
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.timeout_ms));
    set(CURLOPT_WRITEFUNCTION, &take_answer);
    set(CURLOPT_WRITEDATA, &exchange_);
    set(CURLOPT_XFERINFOFUNCTION, &ask_to_go_on);
    set(CURLOPT_XFERINFODATA, &exchange_);
    set(CURLOPT_NOPROGRESS, 0L);
    set_text(CURLOPT_USERNAME, request.user);
    set_text(CURLOPT_PASSWORD, request.password);
    set_text(CURLOPT_AWS_SIGV4, request.aws_signature);
    set_text(CURLOPT_CAINFO, request.ca_file);
    request.mail_to.empty() ? prepare_post() : prepare_mail();
  }

  void prepare_post() {
    const TransferRequest& request = exchange_.request;
    for (const std::string& header : request.headers) headers_.add(header);
    set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.data());
  }

  void prepare_mail() {
    const TransferRequest& request = exchange_.request;
    const auto brackets = [](const std::string& address) { return "<" + address + ">"; };
    set(CURLOPT_MAIL_FROM, brackets(request.mail_from).c_str());
    for (const std::string& address : request.mail_to) recipients_.add(brackets(address));
    set(CURLOPT_MAIL_RCPT, recipients_.get());
    const long levels[] = {CURLUSESSL_NONE, CURLUSESSL_TRY, CURLUSESSL_ALL};
    set(CURLOPT_USE_SSL, levels[static_cast<std::size_t>(request.tls)]);
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &give_body);
    set(CURLOPT_READDATA, &exchange_);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }

  const CurlLibrary& curl_;
  std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> handle_;
  StringList headers_;
  StringList recipients_;
  Exchange exchange_;
  std::array<char, CURL_ERROR_SIZE> error_{};
};

}  // namespace

TransferAnswer transfer(const TransferRequest& request) { return Call(request).perform(); }

std::string redacted_url(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return "…";
  std::string_view rest = url.substr(scheme + 3);
  const std::size_t end = rest.find_first_of("/?#");
  std::string_view host = rest.substr(0, end);
  host = host.substr(host.rfind('@') + 1);  // npos + 1 is 0
  const bool has_more = end != std::string_view::npos && end + 1 < rest.size();
  return fmt::format("{}://{}{}", url.substr(0, scheme), host, has_more ? "/…" : "");
}

}  // namespace tensortap
