#pragma once

#include <memory>

namespace c10::openreg {

// For a thread_local at namespace scope: a value that each thread makes at its first use and drops when the thread
// ends. Whatever T is, the thread_local takes only 8 bytes. All thread-local variables of the libraries must fit into
// the little static storage that glibc keeps for libraries that are loaded late. If they do not fit, every access to
// every one of these variables is a slow call.
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
