#include "CommunicationStreams.h"

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
  const std::lock_guard lock(mutex_);
  orStream_t& stream = streams_[c10::str(key, "@", static_cast<int>(device.index()))];
  if (stream == nullptr) {
    const c10::openreg::CurrentDevice current(device.index());
    OPENREG_CHECK(orStreamCreateWithPriority(&stream, 0, is_high_priority ? -1 : 0));
  }
  return stream;
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
