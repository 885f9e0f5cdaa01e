#include "runtime/memory/OpenRegCachingAllocator.h"

#include <openreg_graph.h>

#include <algorithm>

#include "runtime/memory/OpenRegDeviceAllocator.h"

// Memory pools of the program (torch.openreg.MemPool): which pools serve a request, and the checkpoints of a pool.
namespace c10::openreg {

Block* DevicePools::find_in_use_on_oom_pools(size_t size, StreamId stream) {
  for (auto& [id, set] : private_pools_) {
    if (set->use_on_oom) {
      if (Block* block = pool_of(*set, stream, size).find(size)) {
        return block;
      }
    }
  }
  return nullptr;
}

PoolSet& DevicePools::private_pools(MempoolId_t id) {
  const auto found = private_pools_.find(id);
  TORCH_CHECK(found != private_pools_.end(), "Could not find pool of id: ", id.first, ", ", id.second);
  return *found->second;
}

PoolSet& DevicePools::create_or_incref_pool(MempoolId_t id) {
  auto& set = private_pools_[id];
  if (!set) {
    set = std::make_unique<PoolSet>();
    set->id = id;
  }
  ++set->use_count;
  return *set;
}

void DevicePools::begin_allocate_to_pool(MempoolId_t id, std::function<bool(Stream)> filter) {
  for (const auto& [set, other] : routes_) {
    TORCH_CHECK(set->id != id, "beginAllocateToPool: already recording to mempool_id");
  }
  routes_.emplace_back(&create_or_incref_pool(id), std::move(filter));
}

void DevicePools::end_allocate_to_pool(MempoolId_t id) {
  const auto found = std::find_if(routes_.begin(), routes_.end(), [&](auto& route) { return route.first->id == id; });
  TORCH_CHECK(found != routes_.end(), "endAllocatePool: not currently recording to mempool_id");
  routes_.erase(found);
}

void DevicePools::forget_empty_pools() {
  std::erase_if(
      private_pools_, [](const auto& entry) { return entry.second->use_count == 0 && entry.second->segments == 0; });
}

std::vector<BlockPool*> DevicePools::large_pools() {
  std::vector<BlockPool*> pools;
  shared_.append_to(pools);
  std::erase_if(pools, [](const BlockPool* pool) { return pool->is_small; });
  return pools;
}

std::vector<BlockPool*> DevicePools::releasable_pools(MempoolId_t id) {
  const bool all = id == MempoolId_t{0, 0};
  std::vector<BlockPool*> pools;
  if (all) {
    shared_.append_to(pools);
  }
  for (auto& [private_id, set] : private_pools_) {
    if (set->use_count == 0 && (all || id == private_id)) {
      set->append_to(pools);
    }
  }
  return pools;
}

PoolSet& DevicePools::route(Stream stream) {
  for (const auto& [set, takes] : routes_) {
    if (takes(stream)) {
      return *set;
    }
  }
  return shared_;
}

void DevicePools::add_pools(PoolSet& set, StreamId stream) {
  if (set.streams.size() <= static_cast<size_t>(stream)) {
    set.streams.resize(stream + 1);
  }
  set.streams[stream] = std::make_unique<StreamPools>(stream, &set, stats_, blocks_);
}

void DeviceCachingAllocator::release_pool(MempoolId_t id) {
  std::unique_lock lock(mutex());
  PoolSet& set = pools.private_pools(id);
  TORCH_INTERNAL_ASSERT(set.use_count > 0);
  if (--set.use_count == 0 && !orMayCapture()) { // in a capture, the next emptyCache() gives them back, as with CUDA
    release_blocks(lock, pools.releasable_pools(id), nullptr, [](const Block*) { return true; });
    pools.forget_empty_pools();
  }
}

// ---- checkpoints, for the graph trees of torch.compile: a replay allocates nothing, so before the next capture the
// allocator must know again which blocks the graphs before it use

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
