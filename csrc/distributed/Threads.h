#pragma once

#include <functional>

namespace c10d::openreg {

// Runs `task` on a thread of its own, which an earlier task may have left. Tasks wait for other ranks, and any task may be
// what another one waits for, so the number of threads has no limit.
void run_on_thread(std::function<void()> task);

} // namespace c10d::openreg
