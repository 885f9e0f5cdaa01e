#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "occl.h"

namespace occl {
namespace {

struct ThreadPool {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  size_t idle = 0; // how many threads wait for a task, or have been started for one
};

// Never deleted: while the process exits, a task may still wait for another rank, and its thread uses the pool
// afterwards.
ThreadPool& threadPool() {
  static auto* const made = new ThreadPool();
  return *made;
}

void runTasks() {
  pthread_setname_np(pthread_self(), "occl");
  ThreadPool& pool = threadPool();
  std::unique_lock lock(pool.mutex);
  for (;;) {
    while (pool.tasks.empty()) {
      // Not wait(): with GCC 12 this function needs a symbol that older systems do not have. wait_for() is compiled
      // into its caller.
      pool.changed.wait_for(lock, std::chrono::hours(24));
    }
    std::function<void()> task = std::move(pool.tasks.front());
    pool.tasks.pop_front();
    --pool.idle;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++pool.idle;
  }
}

} // namespace

void runOnThread(std::function<void()> task) {
  ThreadPool& pool = threadPool();
  const std::lock_guard lock(pool.mutex);
  if (pool.idle <= pool.tasks.size()) {
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
      std::thread(runTasks).detach();
    } catch (...) {
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      throw;
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
    ++pool.idle;
  }
  pool.tasks.push_back(std::move(task));
  pool.changed.notify_one();
}

} // namespace occl
