// A rule written in Python, as the engine sees it: check() takes the GIL and calls. Made by
// Session.add_rule. Not thread-safe, like every Rule.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <nanobind/nanobind.h>

#include "rules/rule.h"

namespace tensortap::bindings {

// callable(step, mode, mode_step) -> bool, None, or a sequence of Finding or of mappings with the
// fields of Finding. What it raises becomes an Error, by which the engine switches the rule off.
std::unique_ptr<Rule> make_python_rule(std::string name, nanobind::callable callable);

// A function of the script's, called with a finding. An exception becomes an Error with its type
// and text, but Ctrl-C is raised again. GIL as above.
std::function<void(const Finding&)> make_python_function(nanobind::callable callable);

}  // namespace tensortap::bindings
