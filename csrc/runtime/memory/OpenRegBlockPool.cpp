#include "runtime/memory/OpenRegBlockPool.h"

namespace c10::openreg {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

Block* BlockPool::find_merged(size_t size) {
  // max_split_size_mb works as in CUDA's allocator: a free block of at least this size is not split. So only a request
  // of at least this size gets such a block, and only if little of the block is wasted.
  const size_t limit = AcceleratorAllocatorConfig::max_split_size();
  for (;;) {
    Block key(nullptr, size, 0, this);
    const auto fit = merged_.lower_bound(&key);
    if (fit != merged_.end()) {
      Block* block = *fit;
      const bool wasteful = size < limit
                                ? block->size >= limit
                                : block->size >= size + AcceleratorAllocatorConfig::max_non_split_rounding_size();
      if (C10_UNLIKELY(wasteful)) {
        return nullptr;
      }
      merged_.erase(fit);
      remove_from_inactive_stats(block);
      return block;
    }
    if (binned_ == 0) {
      return nullptr;
    }
    merge_bins();
  }
}

void BlockPool::merge_bins() {
  if (binned_ == 0) {
    return;
  }
  for (Block*& bin : bins_) {
    while (Block* block = bin) {
      bin = block->next_in_bin;
      block->binned = false;
      remove_from_inactive_stats(block);
      merge(block);
    }
  }
  binned_ = 0;
}

void BlockPool::merge(Block* block) {
  const auto absorb = [&](Block* left, Block* right) {
    left->size += right->size;
    left->freed_at = std::max(left->freed_at, right->freed_at);
    left->next = right->next;
    if (right->next) {
      right->next->previous = left;
    }
    blocks_->erase(right->address);
    delete right;
    return left;
  };
  const auto take_out = [&](Block* other) {
    if (!other || other->allocated || other->binned || other->event_count > 0) {
      return false;
    }
    remove_from_inactive_stats(other);
    merged_.erase(other);
    return true;
  };
  if (take_out(block->next)) {
    absorb(block, block->next);
  }
  if (take_out(block->previous)) {
    block = absorb(block->previous, block);
  }
  merged_.insert(block);
  add_to_inactive_stats(block);
}

void BlockPool::split(Block* block, size_t size) {
  auto* rest = new Block(block->address + size, block->size - size, block->device, this);
  rest->freed_at = block->freed_at;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->size = size;
  blocks_->emplace(rest->address, rest);
  merged_.insert(rest);
  add_to_inactive_stats(rest);
}

} // namespace c10::openreg
