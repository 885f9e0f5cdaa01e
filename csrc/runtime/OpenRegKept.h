#pragma once

#include <utility>

// Marks the handles (streams, events) and the memory of the device library that this library keeps until the process
// ends, or in a cache. The leak check of the sanitizer does not count them.
namespace c10::openreg {

inline thread_local bool makes_kept = false;

// While an object of this class exists, all handles and memory that the calling thread makes are marked.
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
