#pragma once

#include <c10/core/Device.h>
#include <openreg.h>

#include <compare>
#include <map>
#include <mutex>
#include <utility>

namespace c10d::openreg {

// Which calls of a group share a communication stream: those with the same key, on the same device.
struct StreamKey {
  enum class Kind { collectives, send, recv, coalesced };

  Kind kind = Kind::collectives;
  int peer = -1; // the other rank of a send or a recv; -1: a recv from any rank

  auto operator<=>(const StreamKey&) const = default;
};

// The communication streams of a group. The rules in ProcessGroupOCCL.h say which calls share a stream.
class CommunicationStreams final {
 public:
  ~CommunicationStreams();

  // The stream of this key and device. The first call makes it, with this priority.
  orStream_t get(const StreamKey& key, c10::Device device, bool is_high_priority);

  // Waits for the work of all streams.
  void synchronize();

 private:
  std::mutex mutex_;
  std::map<std::pair<StreamKey, c10::DeviceIndex>, orStream_t> streams_;
};

} // namespace c10d::openreg
