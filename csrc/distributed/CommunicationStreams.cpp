#include "distributed/CommunicationStreams.h"

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegObserver.h"

namespace c10d::openreg {

CommunicationStreams::~CommunicationStreams() {
  for (const auto& [key, stream] : streams_) {
    orStreamDestroy(stream);
  }
}

orStream_t CommunicationStreams::get(const StreamKey& key, c10::Device device, bool is_high_priority) {
  const std::pair place(key, device.index());
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = streams_.find(place); found != streams_.end()) {
      return found->second;
    }
  }
  // The lock is not held here: orStreamCreateWithPriority() calls the observers of the device, and one of them may wait
  // for Python's interpreter.
  orStream_t made = nullptr;
  {
    const c10::openreg::CurrentDevice current(device.index());
    // The group owns the stream: if the program keeps the group until its end, as DDP does, it has leaked no stream.
    const c10::openreg::ObservedCalls calls(c10::openreg::CallKind::Internal);
    OPENREG_CHECK(orStreamCreateWithPriority(&made, 0, is_high_priority ? -1 : 0));
  }
  orStream_t kept;
  {
    const std::lock_guard lock(mutex_);
    kept = streams_.emplace(place, made).first->second;
  }
  if (kept != made) { // another thread was faster
    orStreamDestroy(made);
  }
  return kept;
}

void CommunicationStreams::synchronize() {
  const auto streams = [&] {
    const std::lock_guard lock(mutex_);
    return streams_;
  }();
  for (const auto& [key, stream] : streams) {
    OPENREG_CHECK(orStreamSynchronize(stream));
  }
}

} // namespace c10d::openreg
