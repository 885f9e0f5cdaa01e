#pragma once

#include <openreg_graph.h>

#include <memory>

#include "runtime/OpenRegStream.h"

// Questions about captures, as in c10/cuda/CUDAGraphsC10Utils.h. While no stream of the process captures, each costs one
// load and one branch.
namespace c10::openreg {

// The number of the capture that `stream` is part of; 0 if it does not capture. Also sets `graph`, if it is not null, to
// the graph of the capture; leaves it as it is if there is none.
inline uint64_t capture_of(Stream stream, orGraph_t* graph = nullptr) {
  uint64_t number = 0;
  if (orMayCapture()) {
    orStreamCaptureStatus status = orStreamCaptureStatusNone;
    OPENREG_CHECK(orStreamGetCaptureInfo(OpenRegStream(stream).stream(), &status, &number, graph));
  }
  return number;
}

// Gives the object to the graph, which destroys it on any thread. Returns the object, for the node that needs it.
template <class T>
T* retain(orGraph_t graph, std::unique_ptr<T> object) {
  const orHostFn_t destroy = [](void* data) { delete static_cast<T*>(data); };
  OPENREG_CHECK(orGraphRetainUserObject(graph, object.get(), destroy));
  return object.release();
}

// While an object of this class lives, no capture refuses the unsafe calls of the calling thread (openreg_graph.h). For
// calls that the program does not make itself.
class UnsafeCalls {
 public:
  UnsafeCalls() {
    if (orMayCapture()) {
      exchange();
      exchanged_ = true;
    }
  }
  ~UnsafeCalls() {
    if (exchanged_) {
      exchange();
    }
  }
  UnsafeCalls(const UnsafeCalls&) = delete;
  UnsafeCalls& operator=(const UnsafeCalls&) = delete;

 private:
  orStreamCaptureMode mode_ = orStreamCaptureModeRelaxed;
  bool exchanged_ = false;

  void exchange() {
    orThreadExchangeStreamCaptureMode(&mode_); // fails in a forked child only, which has no captures
  }
};

} // namespace c10::openreg
