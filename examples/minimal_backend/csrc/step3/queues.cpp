#include "queues.h"

#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>

// Takes the place of the driver: a queue is a thread that runs its work in order.
namespace abacus {
namespace {

class Queue {
 public:
  Queue() {
    std::thread([this] { run(); }).detach();
  }
  void add(Work work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++added_;
    changed_.notify_all();
  }
  int64_t added() {
    const std::lock_guard lock(mutex_);
    return added_;
  }
  bool reached(int64_t count) {
    const std::lock_guard lock(mutex_);
    return done_ >= count;
  }
  void wait(int64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count; });
  }
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }

 private:
  [[noreturn]] void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !held_ && !work_.empty(); });
      const Work work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  int64_t added_ = 0, done_ = 0;
  bool held_ = false;
};

struct Queues {
  std::mutex mutex;
  std::deque<Queue> all{1}; // a queue keeps its address
  pid_t process = getpid();
};

// Never deleted: the threads run until the process ends. A forked child has none of them.
Queues& queues() {
  static Queues& queues = *new Queues();
  if (queues.process != getpid()) {
    throw std::runtime_error(
        "Cannot re-initialize abacus in forked subprocess. To use abacus with multiprocessing, you must use the "
        "'spawn' "
        "start method");
  }
  return queues;
}

Queue& get(int64_t queue) {
  Queues& queues = abacus::queues();
  const std::lock_guard lock(queues.mutex);
  return queues.all.at(queue);
}

thread_local int64_t current = 0;

void enqueue(Work work) {
  get(current).add(std::move(work));
}

void wait_for_current() {
  wait_for(mark(current));
}

void wait_for_all() {
  int64_t count = 0;
  {
    const std::lock_guard lock(queues().mutex);
    count = static_cast<int64_t>(queues().all.size());
  }
  for (int64_t queue = 0; queue < count; ++queue) {
    wait_for(mark(queue));
  }
}

const bool registered = (launch = &enqueue, wait_for_queue = &wait_for_current, wait_for_device = &wait_for_all, true);

} // namespace

int64_t new_queue() {
  Queues& queues = abacus::queues();
  const std::lock_guard lock(queues.mutex);
  queues.all.emplace_back();
  return static_cast<int64_t>(queues.all.size()) - 1;
}

int64_t current_queue() {
  return current;
}

void set_current_queue(int64_t queue) {
  get(queue); // raises if there is no such queue
  current = queue;
}

void hold(int64_t queue, bool held) {
  get(queue).hold(held);
}

Mark mark(int64_t queue) {
  return {queue, get(queue).added()};
}

bool reached(Mark mark) {
  return get(mark.queue).reached(mark.count);
}

void wait_for(Mark mark) {
  get(mark.queue).wait(mark.count);
}

void wait_in_queue(int64_t queue, Mark mark) {
  get(queue).add([mark] { wait_for(mark); });
}

} // namespace abacus
