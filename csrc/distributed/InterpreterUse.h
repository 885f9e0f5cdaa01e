#pragma once

#include <chrono>
#include <utility>

#include "runtime/OpenRegException.h"

namespace c10d::openreg {

// A use of Python's interpreter, mostly by a thread that Python does not know: the thread calls Python callbacks, or
// destroys objects that may be Python's. end_interpreter_uses() waits for its end.
//
// Before version 3.14, an interpreter that ends stops every other thread that asks for its lock, by pthread_exit(). If
// the thread asks in a destructor, the process aborts.
class InterpreterUse final {
 public:
  InterpreterUse();
  InterpreterUse(const InterpreterUse&) = delete;
  InterpreterUse& operator=(const InterpreterUse&) = delete;
  ~InterpreterUse();

  // False if end_interpreter_uses() had returned before: then the thread should not use the interpreter.
  explicit operator bool() const {
    return allowed_;
  }

 private:
  const bool allowed_;
};

// To be called before the interpreter ends, without its lock. Waits for the end of all uses, but at most 10 seconds,
// because a callback may wait for something that never comes. If the interpreter ends during a use, the process may
// abort.
OPENREG_API void end_interpreter_uses();

// Sleeps until 10 seconds have passed since end_interpreter_uses(). Nearly always the process ends meanwhile. If it
// does not, an atexit handler that was registered before torch was imported may still run, and wait for a future.
void outlast_interpreter();

// Destroys what `object` holds, which may be Python's. After end_interpreter_uses() it is never destroyed.
template <typename T>
void release(T& object) {
  const InterpreterUse use;
  T released = std::move(object);
  if (!use) {
    new T(std::move(released)); // NOLINT: a leak
  }
}

} // namespace c10d::openreg
