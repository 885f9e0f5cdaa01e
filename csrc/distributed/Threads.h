#pragma once

#include <chrono>
#include <functional>

#include "runtime/OpenRegException.h"

namespace c10d::openreg {

// Runs `task` on a thread that runs no other task meanwhile. Idle threads are used again. The number of threads has no
// limit, because tasks wait for other ranks: with a limit, a task might wait for another task that gets no thread.
void run_on_thread(std::function<void()> task);

// Exists while a thread of run_on_thread() completes a request: meanwhile the thread may run Python callbacks and destroy
// Python objects. After end_completions(), the constructor waits for 10 seconds, in which the process usually ends.
class Completing final {
 public:
  Completing();
  Completing(const Completing&) = delete;
  Completing& operator=(const Completing&) = delete;
  ~Completing();
};

// To be called before Python's interpreter ends, without its lock. An interpreter that ends stops every other thread
// that wants its lock, with pthread_exit(), and a thread that wants it in a destructor aborts the process. So this
// function waits until no thread completes a request, and lets none begin. Both this function and the threads wait for at
// most 10 seconds: a callback may wait for something that never comes, and the program may use a group afterwards, in an
// atexit handler that it registered before it imported torch.
OPENREG_API void end_completions();

// A long time limit for waits without a limit, which wait again when it is reached. They cannot call
// condition_variable::wait(): with GCC 12 this function needs a symbol that older systems do not have. wait_for() is
// compiled into its caller.
constexpr std::chrono::hours kLong{24};

} // namespace c10d::openreg
