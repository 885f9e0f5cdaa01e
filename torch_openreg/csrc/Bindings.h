#pragma once

#include <torch/csrc/utils/pybind.h>

#include <vector>

// The functions of torch_openreg._C come from the files of this folder and of its subfolders. Each file makes an object
// of the class Bindings, so no file names the others, and a file can be deleted.
//
// Rule: glue only. A function converts its arguments, calls csrc or the device's C API, and converts the result.
// wrap_pybind_function wraps a function that may throw. It turns a c10::Error into a RuntimeError, and a subclass such
// as c10::IndexError into the Python exception of the same name.
using AddBindings = void (*)(pybind11::module_& module);

// Filled while the library is loaded.
inline std::vector<AddBindings>& all_bindings() {
  static std::vector<AddBindings> all;
  return all;
}

struct Bindings {
  // `add` adds functions to the module when Python imports it.
  explicit Bindings(AddBindings add) {
    all_bindings().push_back(add);
  }
};
