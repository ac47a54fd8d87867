// A rule written in Python, as the engine sees it: check() takes the GIL and calls. Made by
// Session.add_rule. Not thread-safe, like every Rule.
#pragma once

#include <memory>
#include <string>

#include <nanobind/nanobind.h>

#include "rules/rule.h"

namespace tensortap::bindings {

// callable(step, mode, mode_step) -> bool, None, or a sequence of Finding or of mappings with the
// fields of Finding. What it raises becomes an Error, by which the engine switches the rule off.
std::unique_ptr<Rule> make_python_rule(std::string name, nanobind::callable callable);

}  // namespace tensortap::bindings
