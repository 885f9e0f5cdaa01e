#pragma once

#include <chrono>
#include <functional>

namespace c10d::openreg {

// Runs `task` on a thread that runs nothing else. Idle threads are used again. The number of threads has no limit,
// because tasks wait for other ranks: with a limit, a task might wait for another task that gets no thread.
void run_on_thread(std::function<void()> task);

// A time limit that is never reached. The reason for it: with GCC 12, condition_variable::wait() needs a symbol that
// older systems do not have, and wait_for() is compiled into its caller.
constexpr std::chrono::hours kLong{24};

} // namespace c10d::openreg
