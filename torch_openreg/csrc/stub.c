/* The module that `import torch_openreg._C` loads. It has only the entry point: all other code is in a library that
 * others can link against. */
#include <Python.h>

extern PyObject* openreg_init_module(void);

PyMODINIT_FUNC PyInit__C(void) {
  return openreg_init_module();
}
