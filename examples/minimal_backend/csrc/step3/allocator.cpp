#include <c10/core/Event.h>

#include <unordered_set>
#include <vector>

#include "../step2/caching_allocator.h"

namespace abacus {
namespace {

// LITERALINCLUDE START: STREAM ALLOCATOR
// A block may be used on other streams than its own, for which the program calls recordStream(). When the block is
// freed, this allocator records an event on each of those streams. The block is free when the device has passed them.
class StreamAllocator final : public CachingAllocator {
 public:
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(data.get());
    if (found != used_.end() && found->second->stream != stream.id()) {
      users_[found->second].insert(stream);
    }
  }

 protected:
  void put_back(Block& block) override {
    const auto users = users_.extract(&block);
    if (users.empty()) {
      CachingAllocator::put_back(block);
      return;
    }
    Waiting waiting{&block, {}};
    for (const c10::Stream& stream : users.mapped()) {
      waiting.events.emplace_back(kType).record(stream);
    }
    waiting_.push_back(std::move(waiting));
  }

  void collect(bool wait) override {
    std::erase_if(waiting_, [&](Waiting& waiting) {
      for (c10::Event& event : waiting.events) {
        if (wait) {
          event.synchronize();
        } else if (!event.query()) {
          return false;
        }
      }
      CachingAllocator::put_back(*waiting.block);
      return true;
    });
  }

 private:
  struct Waiting {
    Block* block;
    std::vector<c10::Event> events;
  };
  std::unordered_map<Block*, std::unordered_set<c10::Stream>> users_;
  std::vector<Waiting> waiting_;
};
// LITERALINCLUDE END: STREAM ALLOCATOR

const bool registered = (c10::SetAllocator(kType, new StreamAllocator(), 2), true);

} // namespace
} // namespace abacus
