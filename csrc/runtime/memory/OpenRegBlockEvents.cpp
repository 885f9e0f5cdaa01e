#include "runtime/memory/OpenRegBlockEvents.h"

#include "runtime/OpenRegFixedLine.h"

namespace c10::openreg {

void BlockEvents::insert_events(Block* block) {
  const FixLine not_known; // the caller holds the allocator's lock, so Python cannot be asked for the line
  for (const Stream& stream : block->stream_uses) {
    const orEvent_t event = create_event(stream);
    OPENREG_CHECK(orEventRecord(event, stream_handle(stream)));
    insert(event, block);
    ++block->event_count;
  }
  block->stream_uses.clear();
}

std::vector<Block*> BlockEvents::take_finished() {
  std::vector<Block*> finished;
  std::deque<std::pair<orEvent_t, Block*>> pending;
  for (auto& [event, block] : events_) {
    if (orEventQuery(event) == orErrorNotReady) {
      pending.emplace_back(event, block);
      continue;
    }
    orEventDestroy(event);
    if (block->event_count == 1) {
      finished.push_back(block);
    } else {
      --block->event_count;
    }
  }
  events_ = std::move(pending);
  return finished;
}

} // namespace c10::openreg
