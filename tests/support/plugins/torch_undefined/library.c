// Compiled to torch_undefined/_C.so.
extern void _ZN2at7openreg7missingEi(int);

void* PyInit__C(void) {
  _ZN2at7openreg7missingEi(0);
  return 0;
}
