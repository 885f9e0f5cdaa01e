#pragma once

#include "distributed/CollectiveEngine.h"

namespace c10d::openreg {

// An engine that runs each request on a separate thread. run() may wait there.
class ThreadedEngine : public CollectiveEngine, public std::enable_shared_from_this<ThreadedEngine> {
 public:
  void start(std::shared_ptr<CollectiveRequest> request, Done done) final;

 protected:
  // If the reduction has a factor, the inputs are multiplied copies.
  virtual void run(CollectiveRequest& request) = 0;
};

} // namespace c10d::openreg
