#include "rules/plugin.h"

#include <bit>
#include <filesystem>

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/error.h"
#include "rules/plugin_api.h"

namespace tensortap {
namespace {

[[noreturn]] void refuse(std::string_view why, const std::string& path) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", why, path));
}

}  // namespace

RulePlugin::RulePlugin(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(path, ignored);
  if (!std::filesystem::is_regular_file(absolute, ignored)) {
    refuse("there is no such plugin file", path);
  }
  handle_ =
      std::shared_ptr<void>(dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* handle) {
        if (handle != nullptr) dlclose(handle);
      });
  if (handle_ == nullptr) refuse(fmt::format("the plugin does not load ({})", dlerror()), path);
  using TableFunction = const RulePluginTable* (*)();
  const auto table_of = std::bit_cast<TableFunction>(dlsym(handle_.get(), kRulePluginSymbol));
  if (table_of == nullptr) {
    refuse("the shared object exports no rules (TENSORTAP_RULE_PLUGIN is missing)", path);
  }
  const RulePluginTable* table = table_of();
  if (table == nullptr || !(table->interface == RuleInterface())) {
    refuse("the plugin was built for another version of Tensortap, or by another compiler", path);
  }
  rules_ = {table->rules, table->rule_count};
}

}  // namespace tensortap
