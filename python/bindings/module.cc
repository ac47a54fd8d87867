// tensortap._core: the engine for Python. One file a folder of src/; each border call turns
// tensortap::Error into the classes of tensortap.exceptions (base.cc).
#include "bindings/bindings.h"

NB_MODULE(_core, module) {
  module.doc() = "The C++ engine of Tensortap. Private: use `tensortap` and `tensortap.pytorch`.";
  // At exit a traceback or a thread may still hold objects; a library says nothing about that.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = TENSORTAP_VERSION;
  namespace bindings = tensortap::bindings;
  bindings::bind_base(module);
  bindings::bind_tensor(module);
  bindings::bind_capture(module);
  bindings::bind_trial(module);
  bindings::bind_rules(module);
  bindings::bind_actions(module);
  bindings::bind_session(module);
}
