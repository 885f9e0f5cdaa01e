#pragma once

#include <memory>

namespace c10::openreg {

// A value that each thread makes at its first use and drops when the thread ends, for a thread_local at namespace
// scope. It takes 8 bytes there, because all thread-local variables of the libraries must fit into the little static
// storage that glibc keeps for libraries that are loaded late. If they do not fit, every access to every one of them is
// a slow call.
template <class T>
class ThreadOwned {
 public:
  T& operator*() {
    if (!value_) {
      value_ = std::make_unique<T>();
    }
    return *value_;
  }
  T* operator->() {
    return &**this;
  }

 private:
  std::unique_ptr<T> value_;
};

} // namespace c10::openreg
