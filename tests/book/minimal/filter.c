/*
 * Leaves out some of the backend's kernels, for `python -m tests.book.minimal`. The library of this file is preloaded
 * and stands between libtorch_openreg.so and the two functions of libtorch_cpu.so with which torch::Library registers a
 * kernel. A backend with fewer kernels can thus be tried out without a build, and the backend does not know the filter.
 *
 * OPENREG_ROWS names the operators that may be registered, separated by commas; "fallback" lets the fallbacks through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the call came from the backend and `name` is not in the list. */
static int removed(const char* name, const void* caller) {
  const char* rows = getenv("OPENREG_ROWS");
  Dl_info library;
  if (rows == NULL || dladdr(caller, &library) == 0 || strstr(library.dli_fname, "libtorch_openreg.so") == NULL) {
    return 0;
  }
  const size_t length = strlen(name);
  for (const char* row = rows; row != NULL; row = strchr(row, ',') != NULL ? strchr(row, ',') + 1 : NULL) {
    if (strncmp(row, name, length) == 0 && (row[length] == ',' || row[length] == '\0')) {
      return 0;
    }
  }
  return 1;
}

static void* original(const char* symbol) {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void* function = torch != NULL ? dlsym(torch, symbol) : NULL;
  if (function == NULL) {
    fprintf(stderr, "filter.c: libtorch_cpu.so has no %s\n", symbol);
    abort();
  }
  return function;
}

#define IMPL "_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE"
#define FALLBACK "_ZNR5torch7Library9_fallbackEONS_11CppFunctionE"

/* torch::Library& torch::Library::_impl(const char* name, CppFunction&& kernel, _RegisterOrVerify) & */
void* library_impl(void* library, const char* name, void* kernel, int verify) __asm__(IMPL);
void* library_impl(void* library, const char* name, void* kernel, int verify) {
  if (removed(name, __builtin_return_address(0))) {
    return library;
  }
  return ((void* (*)(void*, const char*, void*, int))original(IMPL))(library, name, kernel, verify);
}

/* torch::Library& torch::Library::_fallback(CppFunction&& kernel) & */
void* library_fallback(void* library, void* kernel) __asm__(FALLBACK);
void* library_fallback(void* library, void* kernel) {
  if (removed("fallback", __builtin_return_address(0))) {
    return library;
  }
  return ((void* (*)(void*, void*))original(FALLBACK))(library, kernel);
}
