#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

// The line of the program that is reported for calls which this library makes under one of its locks. The device
// library tells its subscribers of each call. One subscriber, the sanitizer, then asks Python for the line of the
// program. By the rule of locks (OpenRegMutex.h), no thread waits for Python's interpreter under a lock. So the line is
// taken before the lock, or it is not known.
namespace c10::openreg {

// The sanitizer's function for the line of the calling thread. It waits for Python's interpreter. Null: no line is
// needed.
inline std::atomic<uint32_t (*)()> line_source{nullptr};

struct FixedLine {
  bool is_fixed = false;
  uint32_t line = 0; // 0: not known
};
inline thread_local FixedLine fixed_line;

// While an object of this class lives, the sanitizer uses `line` as the calling thread's line, and does not ask Python.
class FixLine {
 public:
  explicit FixLine(uint32_t line = 0) : outer_(std::exchange(fixed_line, FixedLine{true, line})) {}
  ~FixLine() {
    fixed_line = outer_;
  }
  FixLine(const FixLine&) = delete;
  FixLine& operator=(const FixLine&) = delete;

 private:
  const FixedLine outer_;
};

} // namespace c10::openreg
