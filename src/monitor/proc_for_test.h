// For tests of monitor/: a made-up /proc and /sys in a directory of their own. Header only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tensortap {

class FakeProc {
 public:
  FakeProc() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tensortap-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~FakeProc() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeProc(const FakeProc&) = delete;
  FakeProc& operator=(const FakeProc&) = delete;

  const std::string& root() const { return root_; }
  void write(const std::string& name, const std::string& text) const {
    const std::string path = root_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
  }

 private:
  std::string root_;
};

}  // namespace tensortap
