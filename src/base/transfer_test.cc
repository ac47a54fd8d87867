#include "base/transfer.h"

#include <gtest/gtest.h>

namespace tensortap {
namespace {

TEST(RedactedUrlTest, KeepsSchemeAndHostOnly) {
  EXPECT_EQ(redacted_url("https://hooks.slack.com/services/T0/B0/XYZ"),
            "https://hooks.slack.com/…");
  EXPECT_EQ(redacted_url("https://user:secret@host:8443/x?token=1"), "https://host:8443/…");
  EXPECT_EQ(redacted_url("https://host?token=1"), "https://host/…");
  EXPECT_EQ(redacted_url("smtp://mail.example.org:587"), "smtp://mail.example.org:587");
  EXPECT_EQ(redacted_url("https://host/"), "https://host");
  EXPECT_EQ(redacted_url("secret-without-a-scheme"), "…");
}

TEST(TransferTest, NobodyListeningIsAnAnswerThatMayPass) {
  TransferRequest request;
  request.url = "http://127.0.0.1:1/hidden";
  request.body = "{}";
  const TransferAnswer answer = transfer(request);
  EXPECT_FALSE(answer.is_complete);
  EXPECT_TRUE(answer.is_transient);
  EXPECT_EQ(answer.status, 0);
  EXPECT_NE(answer.error.find("127.0.0.1"), std::string::npos) << answer.error;
  EXPECT_EQ(answer.error.find("hidden"), std::string::npos) << answer.error;
}

TEST(TransferTest, AnAddressThatIsNoneWillNotPass) {
  TransferRequest request;
  request.url = "nonsense://host/";
  const TransferAnswer answer = transfer(request);
  EXPECT_FALSE(answer.is_complete);
  EXPECT_FALSE(answer.is_transient);
}

TEST(TransferTest, ACancelledOneEndsAtOnce) {
  const std::atomic<bool> is_cancelled = true;
  TransferRequest request;
  request.url = "http://127.0.0.1:1/";
  request.is_cancelled = &is_cancelled;
  EXPECT_FALSE(transfer(request).is_complete);
}

}  // namespace
}  // namespace tensortap
