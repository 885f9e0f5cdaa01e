#pragma once

#include <deque>

#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegBlockPool.h"

namespace c10::openreg {

// The stream from which a block was allocated.
inline Stream stream_of(const Block* block) {
  return Stream(Stream::UNSAFE, Device(DeviceType::PrivateUse1, block->device), block->pool->stream);
}

// Blocks that were freed while streams still used them. Each waits for the events that were recorded on these streams.
// This class takes no lock: its callers, DeviceBlockCache and DeviceCachingAllocator, hold the lock of the device.
class BlockEvents {
 public:
  bool empty() const {
    return events_.empty();
  }

  // Records an event on each stream that recordStream() named for the block.
  void insert_events(Block* block);

  // Lets the block wait for `event` too, and takes the event over. The caller has counted it in event_count.
  void insert(orEvent_t event, Block* block) {
    events_.emplace_back(event, block);
  }

  // Removes the events that have passed, and returns the blocks that wait for no other event. Such a block keeps an
  // event_count of 1, so that no neighbour merges with it; the caller sets the count to 0 when the block may be reused.
  std::vector<Block*> take_finished();

 private:
  std::deque<std::pair<orEvent_t, Block*>> events_;
};

} // namespace c10::openreg
