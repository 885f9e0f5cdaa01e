#pragma once

#include <c10/core/Device.h>
#include <openreg.h>

#include <map>
#include <mutex>
#include <string>

namespace c10d::openreg {

// The communication streams of a group. The rules in ProcessGroupOCCL.h say which calls share a stream.
class CommunicationStreams final {
 public:
  ~CommunicationStreams();

  // The stream of this key and device. The first call makes it, with this priority.
  orStream_t get(const std::string& key, c10::Device device, bool is_high_priority);

  // Waits for the work of all streams.
  void synchronize();

 private:
  std::mutex mutex_;
  std::map<std::string, orStream_t> streams_;
};

} // namespace c10d::openreg
