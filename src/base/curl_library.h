// libcurl's functions, out of the shared library of the system, loaded when first asked for. Used
// by transfer.cc alone. Thread-safe.
#pragma once

#define CURL_DISABLE_TYPECHECK  // its macros would hide the functions
#include <curl/curl.h>

// Macros of the same names, which only cast.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace tensortap {

struct CurlLibrary {
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

// Throws Error(kUnsupported) when there is no libcurl, each time it is asked.
const CurlLibrary& curl_library();

}  // namespace tensortap
