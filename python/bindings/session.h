// _core.Session, shared by the files that bind its methods.
#pragma once

#include <memory>
#include <string>

#include "bindings/bindings.h"
#include "session/session.h"

namespace tensortap::bindings {

struct PySession {
  std::shared_ptr<Session> session;
  PyCollectionSet collections;
  std::string out_dir;

  Recorder& recorder() const { return session->recorder(); }
  ~PySession();
};

// Throws Error(kInvalidArgument) for what no id can be.
TensorId to_tensor_id(PyObject* number);

// The calls that hand tensors and numbers to the engine.
void bind_record(nb::class_<PySession>& type);
// Steps whose statistics a device computes.
void bind_device(nb::class_<PySession>& type);

}  // namespace tensortap::bindings
