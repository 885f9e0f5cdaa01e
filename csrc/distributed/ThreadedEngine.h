#pragma once

#include "distributed/Engine.h"

#include <atomic>

namespace c10d::openreg {

// The time at which a request fails with a timeout.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout) : end_(std::chrono::steady_clock::now() + timeout) {}

  std::chrono::milliseconds left() const {
    using namespace std::chrono;
    return std::max(milliseconds(1), duration_cast<milliseconds>(end_ - steady_clock::now()));
  }
  bool passed() const {
    return std::chrono::steady_clock::now() >= end_;
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

// An engine that runs each request on a separate thread. run() may wait there.
class ThreadedEngine : public Engine, public std::enable_shared_from_this<ThreadedEngine> {
 public:
  void start(std::shared_ptr<Request> request, Done done) final;

 protected:
  virtual void run(Request& request) = 0;
};

} // namespace c10d::openreg
