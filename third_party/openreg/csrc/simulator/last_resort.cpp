#include "simulator/last_resort.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

#include "scheduler.h"
#include "scheduler_state.h"

// In orExecutionChaos a program may wait for the device without a call of this library: it sleeps until a host function
// has set a flag, or until another process has got a message. The device must run then, as a GPU would. So a thread
// looks whether the process is stuck, and if so lets the schedule's next item run.
//
// Stuck means that for kStuck no thread of the process wanted to run. A thread that waits for a processor wants to run:
// so a busy machine is no reason, and the order of the items stays a matter of the seed. A thread that computes may wait
// too, in a loop that reads memory; nothing tells it from other threads but a long time without work for the device.
namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kStuck{50};
constexpr std::chrono::seconds kSpins{10};

nanoseconds cpuTime(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Whether the other threads of the process all sleep, or wait for a disk.
bool othersSleep() {
  const std::string own = std::to_string(gettid());
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == nullptr) {
    return false;
  }
  bool sleep = true;
  while (const dirent* task = sleep ? readdir(tasks) : nullptr) {
    if (task->d_name[0] == '.' || own == task->d_name) {
      continue;
    }
    std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const size_t name = text.rfind(')'); // the state follows the name: "12 (python3) S"
    const char state = name != std::string::npos && name + 2 < text.size() ? text[name + 2] : 'S'; // it has ended
    sleep = state == 'S' || state == 'D';
  }
  closedir(tasks);
  return sleep;
}

class Idleness {
 public:
  // Whether the process is stuck. To be called about every kLook. `progress`: a number that changes when the device has
  // got work or has done some. `waits`: the process waits for another one, so that sleep is no sign.
  bool look(uint64_t progress, bool waits) {
    const Clock::time_point now = Clock::now();
    const nanoseconds used = cpuTime(CLOCK_PROCESS_CPUTIME_ID) - cpuTime(CLOCK_THREAD_CPUTIME_ID);
    // A thread that asks from time to time whether something has happened uses little of a processor.
    const bool computed = used - used_ > (now - at_) / 10;
    if (progress != progress_) {
      progressAt_ = now;
    }
    if (progress != progress_ || waits || computed || !othersSleep()) {
      sleepsSince_ = now;
    }
    at_ = now;
    used_ = used;
    progress_ = progress;
    return now - sleepsSince_ >= kStuck || now - progressAt_ >= kSpins;
  }

  void restart() {
    sleepsSince_ = progressAt_ = Clock::now();
  }

 private:
  Clock::time_point at_ = Clock::now();
  Clock::time_point sleepsSince_ = at_;
  Clock::time_point progressAt_ = at_;
  nanoseconds used_{};
  uint64_t progress_ = 0;
};

struct WatchState {
  std::condition_variable changed;
  bool isStarted = false;
  bool sleeps = false;
};

WatchState& watch() {
  static auto* const watch = new WatchState(); // never deleted: the thread runs until the process is gone
  return *watch;
}

[[noreturn]] void watchForEver() {
  pthread_setname_np(pthread_self(), "openreg watch");
  Idleness idleness;
  for (;;) {
    {
      Locked locked;
      while (scheduler->held.empty() && (order == nullptr || !order->holdsCalls())) {
        watch().sleeps = true;
        watch().changed.wait_for(locked.lock(), kLong);
        watch().sleeps = false;
        idleness.restart();
      }
    }
    std::this_thread::sleep_for(kLook);
    uint64_t progress;
    bool waits;
    {
      const Locked locked;
      progress = scheduler->numbers + scheduler->ended;
      waits = waitsForOthers();
    }
    if (!idleness.look(progress, waits)) {
      continue;
    }
    idleness.restart();
    Locked locked;
    if (scheduler->numbers + scheduler->ended != progress) {
      continue;
    }
    forceNext(locked);
  }
}

} // namespace

void watchForLastResort() {
  WatchState& watched = watch();
  if (watched.sleeps) {
    watched.changed.notify_one();
  }
  if (watched.isStarted) {
    return;
  }
  try {
    startDeviceThread(watchForEver);
    watched.isStarted = true;
  } catch (const std::system_error&) { // the next held item tries again
  }
}

} // namespace openreg
