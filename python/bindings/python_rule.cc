#include "bindings/python_rule.h"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nanobind/stl/string.h>

#include "base/error.h"
#include "bindings/bindings.h"

namespace tensortap::bindings {
namespace {

[[noreturn]] void rethrow(nb::python_error& error) {
  const std::string type = nb::cast<std::string>(error.type().attr("__name__"));
  const std::string text = nb::str(error.value()).c_str();
  // Ctrl-C is for the training and no fault of what it hit: raise it again at the next bytecode.
  // Last, since str() looks for signals too and would raise it here, where it is lost.
  if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  throw Error(ErrorCode::kInternal, text.empty() ? type : fmt::format("{}: {}", type, text));
}

// Lets go of a callable wherever the last owner is.
struct CallableDeleter {
  void operator()(nb::callable* callable) const {
    if (!nb::is_alive()) {
      callable->release();  // nobody is left to count references
      delete callable;
      return;
    }
    const nb::gil_scoped_acquire acquire;
    delete callable;
  }
};

class PythonRule : public Rule {
 public:
  PythonRule(std::string name, nb::callable callable)
      : name_(std::move(name)), callable_(new nb::callable(std::move(callable))) {}

  void check(const StepView& step, std::vector<Finding>& findings) override {
    const nb::gil_scoped_acquire acquire;
    try {
      const nb::object answer =
          (*callable_)(step.step, static_cast<int>(step.mode), step.mode_step);
      count(step);
      append(answer, step, findings);
    } catch (nb::python_error& error) {
      // A rule whose tensors never come must not pass for one that looked and found nothing.
      if (is_miss(error)) {
        ++coverage_.skipped_steps;
        return;
      }
      count(step);
      rethrow(error);
    }
  }

  Coverage coverage() const override { return coverage_; }
  std::string selection() const override { return "whatever " + name_ + " looks at"; }

 private:
  // What a Python rule looks at is its own affair; all tensors of a step were there for it.
  void count(const StepView& step) {
    std::uint64_t tensors = 0;
    for (const WorkerStep& worker : step.workers) {
      const std::uint64_t here = worker.record->rows.size();
      coverage_.checked_tensor_steps += here;
      tensors += worker.dictionary->tensors.size();
    }
    coverage_.matched_tensors = std::max(coverage_.matched_tensors, tensors);
    ++coverage_.checked_steps;
  }

  void append(nb::handle answer, const StepView& step, std::vector<Finding>& findings) const {
    if (answer.is_none()) return;
    if (PyBool_Check(answer.ptr()) || !PySequence_Check(answer.ptr())) {
      const int is_true = PyObject_IsTrue(answer.ptr());
      if (is_true < 0) throw nb::python_error();
      if (is_true != 0) findings.push_back(bare_finding(step));
      return;
    }
    for (nb::handle item : nb::borrow<nb::sequence>(answer)) {
      findings.push_back(to_finding(item, step));
    }
  }

  Finding bare_finding(const StepView& step) const {
    // Of no worker, since the rule looks at all of them; it may name one.
    Finding finding = finding_at(step, "", "");
    finding.rule = name_;
    finding.message = fmt::format("{} fired at step {}", name_, step.step);
    return finding;
  }

  Finding to_finding(nb::handle item, const StepView& step) const {
    Finding finding;
    if (nb::try_cast<Finding>(item, finding)) return finding;
    if (!nb::hasattr(item, "get")) {
      throw Error(ErrorCode::kInvalidArgument,
                  "invoke_at_step must return True, False, a Finding, a dict, or a list of those");
    }
    finding = bare_finding(step);
    const nb::object get = item.attr("get");
    const auto read = [&](const char* key, auto& field) {
      const nb::object value = get(key);
      if (value.is_none()) return;
      if (!nb::try_cast(value, field)) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' of a finding has the wrong type", key));
      }
    };
    read("tensor", finding.tensor);
    read("worker", finding.worker);
    read("step", finding.step);
    read("mode_step", finding.mode_step);
    read("statistic", finding.statistic);
    read("observed", finding.observed);
    read("threshold", finding.threshold);
    read("message", finding.message);
    return finding;
  }

  // The tensor is not there at this step: nothing to judge, and no fault of the rule.
  static bool is_miss(const nb::python_error& error) {
    const nb::module_ exceptions = nb::module_::import_("tensortap.exceptions");
    return error.matches(exceptions.attr("UnavailableError")) ||
           error.matches(exceptions.attr("TensorUnavailable"));
  }

  std::string name_;
  std::unique_ptr<nb::callable, CallableDeleter> callable_;
  Coverage coverage_;
};

}  // namespace

std::unique_ptr<Rule> make_python_rule(std::string name, nb::callable callable) {
  return std::make_unique<PythonRule>(std::move(name), std::move(callable));
}

std::function<void(const Finding&)> make_python_function(nb::callable callable) {
  std::shared_ptr<nb::callable> owned(new nb::callable(std::move(callable)), CallableDeleter());
  return [owned = std::move(owned)](const Finding& finding) {
    const nb::gil_scoped_acquire acquire;
    try {
      (*owned)(finding);
    } catch (nb::python_error& error) {
      rethrow(error);
    }
  };
}

}  // namespace tensortap::bindings
