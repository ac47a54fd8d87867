// What actions that send have in common. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "actions/action.h"
#include "base/transfer.h"

namespace tensortap {

inline constexpr ParameterDescriptor kTimeoutParameter{.name = "timeout",
                                                       .type = ParameterType::kFloat,
                                                       .default_value = "10",
                                                       .doc = "seconds that one try may take",
                                                       .minimum = 0,
                                                       .maximum = 600,
                                                       .is_minimum_exclusive = true};

// Seconds to milliseconds, at least one.
std::int64_t timeout_ms(const Parameters& parameters);

// Sends and gives the answer when the server took it (HTTP 2xx, SMTP done). Throws TransientError
// for what may pass (no connection, a time limit, HTTP 408, 429, 5xx), Error(kIo) for what will
// not. `whom` ("the webhook https://hooks.slack.com/…") stands in the messages.
TransferAnswer deliver(const TransferRequest& request, std::string_view whom);

}  // namespace tensortap
