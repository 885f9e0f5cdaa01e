#pragma once

#include <chrono>
#include <functional>

namespace c10d::openreg {

// Runs `task` on a thread that runs no other task meanwhile. Idle threads are used again. The number of threads has no
// limit, because tasks wait for other ranks: with a limit, a task might wait for another task that gets no thread.
void run_on_thread(std::function<void()> task);

// A long time limit for waits without a limit, which wait again when it is reached. They cannot call
// condition_variable::wait(): with GCC 12 this function needs a symbol that older systems do not have. wait_for() is
// compiled into its caller.
constexpr std::chrono::hours kLong{24};

} // namespace c10d::openreg
