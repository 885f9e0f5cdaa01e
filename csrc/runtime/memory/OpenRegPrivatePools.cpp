#include "runtime/memory/OpenRegCachingAllocator.h"

#include <openreg_graph.h>

#include <algorithm>

// Memory pools of the program (torch.openreg.MemPool), and which pools serve a request.
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
    std::vector<BlockPool*> its_pools;
    set.append_to(its_pools);
    release_blocks(lock, segments.take_all(its_pools, nullptr));
    pools.forget_empty_pools();
  }
}

} // namespace c10::openreg
