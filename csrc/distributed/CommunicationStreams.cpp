#include "distributed/CommunicationStreams.h"

#include <c10/util/StringUtil.h>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"

namespace c10d::openreg {

CommunicationStreams::~CommunicationStreams() {
  for (const auto& [key, stream] : streams_) {
    orStreamDestroy(stream);
  }
}

orStream_t CommunicationStreams::get(const std::string& key, c10::Device device, bool is_high_priority) {
  const std::string name = c10::str(key, "@", static_cast<int>(device.index()));
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = streams_.find(name); found != streams_.end()) {
      return found->second;
    }
  }
  // The lock is not held here: orStreamCreateWithPriority() notifies subscribers, and one may wait for Python's
  // interpreter.
  orStream_t made = nullptr;
  {
    const c10::openreg::CurrentDevice current(device.index());
    OPENREG_CHECK(orStreamCreateWithPriority(&made, 0, is_high_priority ? -1 : 0));
  }
  orStream_t kept;
  {
    const std::lock_guard lock(mutex_);
    kept = streams_.emplace(name, made).first->second;
  }
  if (kept != made) { // another thread was faster
    orStreamDestroy(made);
  }
  return kept;
}

void CommunicationStreams::synchronize() {
  std::map<std::string, orStream_t> streams;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  for (const auto& [key, stream] : streams) {
    OPENREG_CHECK(orStreamSynchronize(stream));
  }
}

} // namespace c10d::openreg
