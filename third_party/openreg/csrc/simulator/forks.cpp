#include "simulator/forks.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <mutex>
#include <string>
#include <utility>

#include "pinned_memory.h"
#include "runtime.h"
#include "scheduler.h"
#include "simulator/threads.h"

// A forked process shares pinned memory with its parent, and nothing but the program orders what the two do with it.
// Usually the child is slower, and so a child that reads what its parent has given to the next copy gets the same wrong
// values in each run. In the schedule `late` the parent waits after the fork instead, until the child has ended, or
// waits for something else than a time.
namespace openreg {
namespace {

constexpr int kForkLook = 10;       // ms
constexpr int kForkLooks = 5;       // in a row in which the child waits for something
constexpr int kAllForkLooks = 1000; // in all forks of the process: the program must end

std::mutex forking; // locked from before a fork until parent and child have their ends of the pipe
int ends[2] = {-1, -1};
std::atomic<int> looks{0};

// Without the right to look, it does not count.
bool sleepsForATime(const std::string& folder) {
  int number = -1;
  std::ifstream(folder + "/syscall") >> number; // a number, or "running"
  return number == SYS_clock_nanosleep
#ifdef SYS_nanosleep
         || number == SYS_nanosleep
#endif
      ;
}

// Whether all threads of a process wait, and none of them for a time.
bool isBlocked(pid_t process) {
  return allThreads(std::to_string(process), true, [](const std::string& folder, char state) {
    return state == 'S' && !sleepsForATime(folder);
  });
}

// `end`: of a pipe, whose other end the child writes its number to, and closes when it ends.
void waitForChild(int end) {
  pid_t child = -1;
  if (read(end, &child, sizeof child) != sizeof child) {
    return;
  }
  for (int blocked = 0; blocked < kForkLooks && looks < kAllForkLooks; ++looks) {
    pollfd ended{end, POLLIN, 0};
    if (poll(&ended, 1, kForkLook) > 0) {
      return;
    }
    blocked = isBlocked(child) ? blocked + 1 : 0;
  }
}

void prepare() {
  forking.lock();
  if (isStarted() && isChaos() && parentsWait && hasPinnedMemory() && pipe2(ends, O_CLOEXEC) != 0) {
    ends[0] = ends[1] = -1;
  }
}

void goOnInParent() {
  const int end = std::exchange(ends[0], -1);
  if (const int other = std::exchange(ends[1], -1); other != -1) {
    close(other);
  }
  forking.unlock();
  if (end != -1) {
    waitForChild(end);
    close(end);
  }
}

void goOnInChild() {
  if (const int end = std::exchange(ends[0], -1); end != -1) {
    close(end);
    const pid_t own = getpid();
    [[maybe_unused]] const ssize_t written = write(ends[1], &own, sizeof own);
    ends[1] = -1; // stays open to the end of the process
  }
  forking.unlock();
}

const bool forksAreWatched = pthread_atfork(&prepare, &goOnInParent, &goOnInChild) == 0;

} // namespace
} // namespace openreg
