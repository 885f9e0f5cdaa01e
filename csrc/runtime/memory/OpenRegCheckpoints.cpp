#include "runtime/memory/OpenRegCachingAllocator.h"

#include <openreg_graph.h>

#include <algorithm>

// Checkpoints of a MemPool, for the graph trees of torch.compile: a replay allocates nothing, so before the next capture
// the allocator must know again which blocks the graphs before it use.
namespace c10::openreg {

std::vector<Block*> DeviceState::blocks_of(MempoolId_t id) const {
  std::vector<Block*> found;
  for (const auto& [address, block] : blocks) {
    if (block->pool->owner->id == id) {
      found.push_back(block);
    }
  }
  std::sort(found.begin(), found.end(), [](const Block* a, const Block* b) { return a->address < b->address; });
  return found;
}

// As blocks_of(), when no block waits for an event any more.
std::vector<Block*> DeviceCachingAllocator::blocks_at_rest(std::unique_lock<Mutex>& lock, MempoolId_t id) {
  synchronize_and_free_events(lock, nullptr);
  auto found = blocks_of(id);
  for (const Block* block : found) {
    TORCH_CHECK(block->event_count == 0, "A block of the pool waits for a stream: no capture may run meanwhile.");
  }
  return found;
}

PrivatePoolState DeviceCachingAllocator::getCheckpointState(MempoolId_t id) {
  std::unique_lock lock(mutex());
  PrivatePoolState state{id, {}};
  for (const Block* block : blocks_at_rest(lock, id)) {
    if (block->previous && !block->allocated && !state.blocks.back().allocated) { // two free neighbours are one gap
      state.blocks.back().size += block->size;
      continue;
    }
    state.blocks.push_back(
        {block->address, block->size, block->requested_size, block->padding, block->allocated, !block->previous});
  }
  return state;
}

std::vector<void*> DeviceCachingAllocator::setCheckpointPoolState(const PrivatePoolState& state) {
  std::unique_lock lock(mutex());
  auto present = blocks_at_rest(lock, state.id);
  std::erase_if(present, [](const Block* block) { return !block->allocated; }); // a merge deletes free neighbours
  for (Block* block : present) {
    block->stream_uses.clear();
    free_at_rest(block);
  }
  std::vector<void*> allocated;
  std::vector<Block*> gaps;
  Block* block = nullptr;
  for (const auto& saved : state.blocks) {
    if (saved.starts_segment) {
      block = find_block(saved.address);
      TORCH_CHECK(block, "The pool has given a segment back to the device since its checkpoint.");
      block->pool->merge_bins();
      block = find_block(saved.address); // now the whole segment
      block->pool->take(block);
    }
    Block* rest = nullptr;
    if (block->size > saved.size) {
      block->pool->split(block, saved.size);
      rest = block->next;
      rest->pool->take(rest);
    }
    if (saved.allocated) {
      AllocParams params{stream_of(block), saved.requested_size, nullptr};
      params.size = saved.size;
      params.padding = saved.padding;
      params.block = block;
      allocated.push_back(alloc_taken_block(params));
    } else {
      gaps.push_back(block);
    }
    block = rest;
  }
  for (Block* gap : gaps) { // last: a free block would be merged with its neighbour
    gap->pool->put(gap);
  }
  return allocated;
}

} // namespace c10::openreg
