#include "distributed/Threads.h"

#include <openreg.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace c10d::openreg {
namespace {

constexpr std::chrono::seconds kExit{10}; // the limit of the waits while the process exits

struct Pool {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  size_t idle = 0; // how many threads wait for a task, or have been started for one
  size_t uses = 0; // how many InterpreterUse objects exist that are allowed
  std::condition_variable unused;
  std::optional<std::chrono::steady_clock::time_point> ended; // when end_interpreter_uses() returned
};

// The pool is never deleted: while the process exits, a task may still wait for another rank, and its thread uses the
// pool afterwards.
Pool& pool() {
  static auto* const made = new Pool();
  return *made;
}

void run_tasks() {
  pthread_setname_np(pthread_self(), "occl");
  Pool& p = pool();
  std::unique_lock lock(p.mutex);
  for (;;) {
    while (p.tasks.empty()) {
      p.changed.wait_for(lock, kLong);
    }
    std::function<void()> task = std::move(p.tasks.front());
    p.tasks.pop_front();
    --p.idle;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++p.idle;
  }
}

} // namespace

InterpreterUse::InterpreterUse()
    : allowed_([] {
        Pool& p = pool();
        const std::lock_guard lock(p.mutex);
        p.uses += p.ended ? 0 : 1;
        return !p.ended;
      }()) {}

InterpreterUse::~InterpreterUse() {
  if (allowed_) {
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    --p.uses;
    p.unused.notify_all();
  }
}

void end_interpreter_uses() {
  if (orIsInBadFork()) { // a child has none of the threads, and may not wait for the lock
    return;
  }
  Pool& p = pool();
  std::unique_lock lock(p.mutex);
  p.unused.wait_for(lock, kExit, [&] { return p.uses == 0; });
  p.ended = std::chrono::steady_clock::now();
}

void outlast_interpreter() {
  Pool& p = pool();
  std::unique_lock lock(p.mutex);
  const auto end = p.ended.value() + kExit;
  lock.unlock();
  std::this_thread::sleep_until(end);
}

void run_on_thread(std::function<void()> task) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  if (p.idle <= p.tasks.size()) {
    // The new thread inherits the signal mask that is set here. The mask blocks signals, so that other threads of the
    // program handle them. It does not block the signals that a thread causes itself, such as SIGSEGV.
    sigset_t all;
    sigset_t previous;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      sigdelset(&all, own);
    }
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    try {
      std::thread(run_tasks).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    ++p.idle;
  }
  p.tasks.push_back(std::move(task));
  p.changed.notify_one();
}

} // namespace c10d::openreg
