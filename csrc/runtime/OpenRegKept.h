#pragma once

#include <utility>

// Which handles (streams, events) and which memory of the device library this library keeps: until the process ends, or
// in a cache. The check for what a program forgot to give back does not count them.
namespace c10::openreg {

inline thread_local bool makes_kept = false;

// While an object of this class exists, the calling thread makes such handles and memory.
class MakesKept {
 public:
  MakesKept() : outer_(std::exchange(makes_kept, true)) {}
  ~MakesKept() {
    makes_kept = outer_;
  }
  MakesKept(const MakesKept&) = delete;
  MakesKept& operator=(const MakesKept&) = delete;

 private:
  const bool outer_;
};

} // namespace c10::openreg
