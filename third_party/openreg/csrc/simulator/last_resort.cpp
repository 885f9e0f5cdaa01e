#include "simulator/last_resort.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>

#include "scheduler.h"
#include "scheduler_state.h"
#include "simulator/threads.h"

// In orExecutionChaos a program may wait for the device without a call of this library: it sleeps until a host function
// has set a flag, or until another process has got a message. The device must run then, as a GPU would. So a thread
// looks whether the process is stuck, and if so lets the schedule's next item run.
//
// Stuck means that in kLooks looks in a row no thread of the process wanted to run. A thread that waits for a processor,
// or for a disk, wants to run: so a busy machine is no reason, and the order of the items stays a matter of the seed. One
// look proves nothing, however long ago the last one was: a thread may sleep for a moment, until another one unlocks.
// A thread that computes may wait too, in a loop that reads memory; nothing tells it from other threads but many looks
// without work for the device. Looks are counted, and not the time: a busy machine delays them as it delays the program.
namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::chrono::milliseconds kLook{10};
constexpr int kLooks = 5;
constexpr int kLooksOfSpins = 1000;

nanoseconds cpuTime(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

// Whether the other threads of the process all sleep, and none waits for a disk.
bool othersSleep() {
  const std::string own = "/" + std::to_string(gettid());
  return allThreads(
      "self", false, [&](const std::string& folder, char state) { return folder.ends_with(own) || state == 'S'; });
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
      restart();
    }
    ++looks_;
    asleep_ = !waits && !computed && othersSleep() ? asleep_ + 1 : 0;
    at_ = now;
    used_ = used;
    progress_ = progress;
    return asleep_ >= kLooks || looks_ >= kLooksOfSpins;
  }

  void restart() {
    looks_ = asleep_ = 0;
  }

 private:
  Clock::time_point at_ = Clock::now();
  nanoseconds used_{};
  int looks_ = 0;  // since the last progress
  int asleep_ = 0; // looks in a row in which the process slept
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
