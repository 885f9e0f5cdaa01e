#pragma once

#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "distributed/InterpreterUse.h"

// The function that a user registered with _register_on_completion_hook(). ProcessGroupNCCL calls it from a thread of
// its own; here the threads that complete the collectives call it. Two collectives may complete at the same time; then
// one thread calls the hook for both. So the hook never runs twice at once, and gets the collectives in the order in
// which they ended.
namespace c10d::openreg {

class CompletionHook final {
 public:
  using Hook = std::function<void(std::shared_ptr<WorkInfo>)>;

  explicit operator bool() const {
    return hook_ != nullptr;
  }

  void set(Hook hook) {
    hook_ = std::move(hook);
  }

  // Adds a collective that has ended. To be called before the stream goes on: otherwise the group's next collective
  // might end on another thread, and be added first.
  void add(std::shared_ptr<WorkInfo> info) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(std::move(info));
  }

  // Calls the hook for all collectives that were added, unless another thread does so already.
  void call() {
    std::unique_lock lock(mutex_);
    if (calling_) {
      return;
    }
    calling_ = true;
    while (!ended_.empty()) {
      const auto info = std::move(ended_.front());
      ended_.pop_front();
      lock.unlock(); // the hook takes Python's interpreter lock
      try {
        if (const InterpreterUse use; use) { // else the program ends, and the hook does not learn of the collective
          hook_(info);
        }
      } catch (const std::exception& error) {
        LOG(ERROR) << "The completion hook of a process group raised: " << error.what();
      }
      lock.lock();
    }
    calling_ = false;
    idle_.notify_all();
  }

  // Waits until call() has taken all collectives that were added. The caller must not hold Python's
  // interpreter lock.
  void wait() {
    std::unique_lock lock(mutex_);
    while (!ended_.empty() || calling_) {
      // Not wait(): with GCC 12 this function needs a symbol that older systems do not have. wait_for() is compiled into
      // its caller.
      idle_.wait_for(lock, std::chrono::hours(24));
    }
  }

 private:
  Hook hook_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::shared_ptr<WorkInfo>> ended_;
  bool calling_ = false;
};

} // namespace c10d::openreg
