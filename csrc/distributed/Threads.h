#pragma once

#include <chrono>
#include <functional>

namespace c10d::openreg {

// Runs `task` on a thread of its own, which an earlier task may have left. Tasks wait for other ranks, and any task may be
// what another one waits for, so the number of threads has no limit.
void run_on_thread(std::function<void()> task);

// As good as no limit. GCC 12 makes of condition_variable::wait() a symbol that systems older than it do not have, and
// compiles wait_for() into its caller.
constexpr std::chrono::hours kLong{24};

} // namespace c10d::openreg
