#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_numbers.h>

#include "Bindings.h"
#include "aten/native/Minimal.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegStream.h"

namespace {

using Integers = c10::SmallVector<int64_t, 8>;

Integers unpack_integers(PyObject* tuple) {
  TORCH_CHECK_TYPE(PyTuple_Check(tuple), "Expected a tuple of integers, but got ", Py_TYPE(tuple)->tp_name, ".");
  Integers integers;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    integers.push_back(THPUtils_unpackLong(PyTuple_GET_ITEM(tuple, i)));
  }
  return integers;
}

// empty_strided(size, stride, dtype), on the current device. A compiled graph calls this function for every buffer, so
// it is a plain function of CPython's C API: a call through pybind11 takes 300 ns longer.
PyObject* empty_strided(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(
      count == 3 && THPDtype_Check(arguments[2]),
      "_empty_strided() takes size and stride, which are tuples of integers, and a dtype.");
  const auto dtype = reinterpret_cast<THPDtype*>(arguments[2])->scalar_type;
  return THPVariable_Wrap(
      at::openreg::empty_compiled(unpack_integers(arguments[0]), unpack_integers(arguments[1]), dtype));
  END_HANDLE_TH_ERRORS
}

uintptr_t current_stream_handle(int64_t device) {
  c10::openreg::check_device_index(device);
  return reinterpret_cast<uintptr_t>(
      c10::openreg::getCurrentOpenRegStream(static_cast<c10::DeviceIndex>(device)).stream());
}

PyMethodDef methods[] = {
    {"_empty_strided",
     // The inner cast to void (*)() is needed: the compiler warns of a direct cast (-Wcast-function-type).
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&empty_strided)),
     METH_FASTCALL,
     nullptr},
    {nullptr, nullptr, 0, nullptr}};

void add_inductor(pybind11::module_& module) {
  TORCH_INTERNAL_ASSERT(PyModule_AddFunctions(module.ptr(), methods) == 0);
  module.def("_current_stream_handle", torch::wrap_pybind_function(&current_stream_handle));
}

const Bindings compiled_code_bindings(&add_inductor);

} // namespace
