#include "actions/delivery.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace tensortap {

std::int64_t timeout_ms(const Parameters& parameters) {
  return std::max<std::int64_t>(1, std::llround(parameters.get_float("timeout") * 1000.0));
}

TransferAnswer deliver(const TransferRequest& request, std::string_view whom) {
  TransferAnswer answer = transfer(request);
  if (!answer.is_complete) {
    const std::string message = fmt::format("{} was not reached: {}", whom, answer.error);
    if (answer.is_transient) throw TransientError(message);
    throw Error(ErrorCode::kIo, message);
  }
  const bool is_mail = !request.mail_to.empty();
  if (is_mail || (answer.status >= 200 && answer.status < 300)) return answer;
  if (answer.status >= 300 && answer.status < 400) {
    throw Error(ErrorCode::kIo,
                fmt::format("{} sends elsewhere (HTTP {}), which is not followed: give the final "
                            "address",
                            whom, answer.status));
  }
  const std::string message = fmt::format("{} answered HTTP {}", whom, answer.status);
  const bool may_pass = answer.status == 408 || answer.status == 429 || answer.status >= 500;
  if (may_pass) throw TransientError(message);
  throw Error(ErrorCode::kIo, message);
}

}  // namespace tensortap
