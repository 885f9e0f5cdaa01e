#pragma once

#include "distributed/Engine.h"

namespace c10d::openreg {

// An engine that runs each request on a separate thread. run() may wait there.
class ThreadedEngine : public Engine, public std::enable_shared_from_this<ThreadedEngine> {
 public:
  void start(std::shared_ptr<Request> request, Done done) final;

 protected:
  // If the reduction has a factor, the inputs are multiplied copies.
  virtual void run(Request& request) = 0;
};

} // namespace c10d::openreg
