// What a storage backend registers: one file in storage/backends/ defines one descriptor; CMake
// generates the list.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "storage/storage.h"

namespace tensortap {

struct StorageDescriptor {
  std::string_view scheme;  // "file", "mem", "s3"
  std::string_view doc;
  // `uri` is whole, with the scheme if one was given.
  std::shared_ptr<Storage> (*open)(std::string_view uri);
};

const std::vector<const StorageDescriptor*>& builtin_storages();

}  // namespace tensortap
