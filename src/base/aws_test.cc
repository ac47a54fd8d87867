#include "base/aws.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace tensortap {
namespace {

// A home of its own, and none of AWS's variables.
class AwsTest : public testing::Test {
 protected:
  AwsTest() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "tensortap-aws-XXXXXX").string();
    home_ = mkdtemp(pattern.data());
    std::filesystem::create_directory(home_ + "/.aws");
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
          "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SNS",
          "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"}) {
      set(name, nullptr);
    }
    set("HOME", home_.c_str());
  }
  ~AwsTest() override {
    for (const auto& [name, value] : before_) {
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
    std::filesystem::remove_all(home_);
  }

  void set(const char* name, const char* value) {
    const char* old = std::getenv(name);
    before_.emplace(name, old != nullptr ? old : "");
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(home_ + "/.aws/" + name) << text;
  }

  std::string home_;
  std::map<std::string, std::string> before_;
};

TEST_F(AwsTest, EnvironmentCountsBeforeFiles) {
  write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key = s\n");
  set("AWS_ACCESS_KEY_ID", "ENV");
  set("AWS_SECRET_ACCESS_KEY", "k");
  set("AWS_SESSION_TOKEN", "t");
  set("AWS_REGION", "eu-central-1");
  set("AWS_ENDPOINT_URL", "http://localhost:1/");
  const AwsSettings settings = read_aws_settings("SNS");
  EXPECT_EQ(settings.access_key, "ENV");
  EXPECT_EQ(settings.session_token, "t");
  EXPECT_EQ(settings.region, "eu-central-1");
  EXPECT_EQ(settings.endpoint_url, "http://localhost:1");
  EXPECT_EQ(read_aws_settings("SNS", "us-west-2").region, "us-west-2");
}

TEST_F(AwsTest, ProfileOfTheFiles) {
  write("credentials",
        "# keys\n[default]\naws_access_key_id=D\naws_secret_access_key=d\n"
        "[ work ]\naws_access_key_id = W\naws_secret_access_key = a=b/c+d\n");
  write("config", "[default]\nregion=us-east-2\n[profile work]\nregion = ap-south-1\n");
  EXPECT_EQ(read_aws_settings("SNS").access_key, "D");
  EXPECT_EQ(read_aws_settings("SNS").region, "us-east-2");
  set("AWS_PROFILE", "work");
  set("AWS_ENDPOINT_URL_SNS", "http://sns");
  const AwsSettings settings = read_aws_settings("SNS");
  EXPECT_EQ(settings.access_key, "W");
  EXPECT_EQ(settings.secret_key, "a=b/c+d");
  EXPECT_EQ(settings.region, "ap-south-1");
  EXPECT_EQ(settings.endpoint_url, "http://sns");
  EXPECT_EQ(read_aws_settings("S3").endpoint_url, "");
}

TEST_F(AwsTest, NoCredentialsSaysWhereTheyWereLookedFor) {
  try {
    read_aws_settings("SNS");
    FAIL() << "there are none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find(home_ + "/.aws/credentials"), std::string::npos);
  }
}

}  // namespace
}  // namespace tensortap
