/* The module that `import torch_openreg._C` loads. It has only the entry point. All other code of the bindings is in
 * the library torch_openreg_bindings, against which other libraries can link. */
#include <Python.h>

extern PyObject* openreg_init_module(void);

PyMODINIT_FUNC PyInit__C(void) {
  return openreg_init_module();
}
