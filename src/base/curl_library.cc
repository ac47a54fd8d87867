#include "base/curl_library.h"

#include <bit>
#include <string>

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/error.h"

namespace tensortap {
namespace {

// The first is what the systems of today have; the second is what Debian calls the other build.
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

[[noreturn]] void refuse(const char* why) {
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("sending needs libcurl, which cannot be loaded ({}); on Debian and Ubuntu "
                  "install libcurl4",
                  why != nullptr ? why : "no reason given"));
}

void* open_library() {
  std::string why;
  for (const char* name : kNames) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
    if (why.empty()) why = dlerror();
  }
  refuse(why.c_str());
}

template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = std::bit_cast<Function>(dlsym(handle, name));  // POSIX promises that it fits
  if (function == nullptr) refuse(dlerror());
}

CurlLibrary load() {
  void* handle = open_library();  // stays open: threads of it may live on
  decltype(&::curl_global_init) global_init = nullptr;
  find(handle, "curl_global_init", global_init);
  CurlLibrary library;
  find(handle, "curl_easy_init", library.easy_init);
  find(handle, "curl_easy_setopt", library.easy_setopt);
  find(handle, "curl_easy_perform", library.easy_perform);
  find(handle, "curl_easy_getinfo", library.easy_getinfo);
  find(handle, "curl_easy_cleanup", library.easy_cleanup);
  find(handle, "curl_easy_strerror", library.easy_strerror);
  find(handle, "curl_slist_append", library.slist_append);
  find(handle, "curl_slist_free_all", library.slist_free_all);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) refuse("it does not start");
  return library;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load();
  return library;
}

}  // namespace tensortap
