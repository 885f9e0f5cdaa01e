#pragma once

#include <utility>

// Marks the calls to the device library that the code of csrc makes for its own purposes, not for the program. The
// sanitizer leaves them out: a handle (a stream or an event) or memory that is kept until the process ends, or in a
// cache, is no leak, and a fill of memory that the program has freed is no use of that memory by the program.
namespace c10::openreg {

inline thread_local bool is_internal_use = false;

// While an object of this class exists, all calls of its thread are marked.
class InternalUse {
 public:
  InternalUse() : outer_(std::exchange(is_internal_use, true)) {}
  ~InternalUse() {
    is_internal_use = outer_;
  }
  InternalUse(const InternalUse&) = delete;
  InternalUse& operator=(const InternalUse&) = delete;

 private:
  const bool outer_;
};

} // namespace c10::openreg
