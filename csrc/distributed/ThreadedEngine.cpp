#include "distributed/ThreadedEngine.h"

#include "distributed/Reduce.h"
#include "distributed/Threads.h"

namespace c10d::openreg {

void ThreadedEngine::start(std::shared_ptr<Request> request, Done done) {
  run_on_thread([self = shared_from_this(), request = std::move(request), done = std::move(done)]() mutable {
    std::exception_ptr failure;
    try {
      request->inputs = premultiplied(request->reduction, request->inputs);
      self->run(*request);
    } catch (...) {
      failure = std::current_exception();
    }
    release(request); // before `done`, which tells the caller that the tensors are not used any more
    done(failure);
    release(done);
  });
}

} // namespace c10d::openreg
