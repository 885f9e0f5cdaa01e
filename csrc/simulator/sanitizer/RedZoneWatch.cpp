#include "simulator/sanitizer/RedZoneWatch.h"

#include <mutex>
#include <utility>
#include <vector>

#include "simulator/ThreadOwned.h"
#include "simulator/sanitizer/Accesses.h"
#include "simulator/sanitizer/MemoryCheck.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

// The blocks whose red zones are checked when a kernel ends.
struct Suspects {
  std::vector<uintptr_t> addresses; // an address in each block
  bool all = false;                 // all blocks: the kernel did not name its operands
};
// One element for each kernel that this thread is in.
thread_local constinit ThreadOwned<std::vector<Suspects>> suspects;

// The search for damaged red zones when a kernel has ended. To be used with the lock of the session held.
class DamageSearch {
 public:
  // Removes the kernel's launch from the session, unless other kernels of the same replay have not ended.
  DamageSearch(const orActivity& activity, Site site) : order_(session->order), kernel_(write_of(activity, site)) {
    const auto launch = session->launches.find(activity.correlation);
    if (launch != session->launches.end()) {
      kernel_.site = launch->second.site;
      order_ = launch->second.order;
      if (launch->second.kernels > 1) {
        --launch->second.kernels;
        launched_with_ = launch->second.blocks;
      } else {
        launched_with_ = std::move(launch->second.blocks);
        session->launches.erase(launch);
      }
    }
  }

  // All blocks that exist.
  void look_behind_all() {
    for (auto& [begin, block] : session->shadow.blocks()) {
      look_behind(block);
    }
  }

  // The blocks with these addresses.
  void look_behind(const std::vector<uintptr_t>& addresses) {
    for (const uintptr_t address : addresses) {
      if (ShadowBlock* const block = session->shadow.find(address)) {
        look_behind(*block);
      }
    }
  }

  // The operands of the launch that were freed before the kernel ran.
  void look_behind_freed() {
    for (ShadowBlock& block : launched_with_) {
      const ShadowBlock* const now = session->shadow.find(block.begin);
      const bool is_freed = !now || now->order != block.order;
      if (is_freed && block.stream == kernel_.stream) { // work of this stream that reuses the memory runs later
        look_behind(block);
      }
    }
  }

  // The red zones that end where the blocks with these addresses begin.
  void look_before(const std::vector<uintptr_t>& addresses) {
    for (const uintptr_t address : addresses) {
      const ShadowBlock* const block = session->shadow.find(address);
      ShadowBlock* const before = block ? session->shadow.find_before(block->begin) : nullptr;
      if (before && red_zone_of(*before).end == block->begin && is_damaged(*before)) {
        found.push_back(make_underrun(*block, kernel_));
      }
    }
  }

  std::vector<Report> found;

 private:
  uint64_t order_; // the number of the last allocation before the launch
  Access kernel_;
  std::vector<ShadowBlock> launched_with_;

  static Access write_of(const orActivity& activity, Site site) {
    return {
        .action = Access::Action::Write,
        .site = site,
        .name = activity.name,
        .stream = activity.stream,
        .device = activity.device};
  }

  bool is_damaged(ShadowBlock& block) {
    if (block.order > order_) { // allocated after the launch: its pattern may not be written yet
      return false;
    }
    block.is_armed |= block.stream == kernel_.stream;
    if (!block.has_red_zone || !block.is_armed) {
      return false;
    }
    kernel_.extent = repair_red_zone(block);
    return !kernel_.extent.empty();
  }

  void look_behind(ShadowBlock& block) {
    if (is_damaged(block)) {
      found.push_back(make_overrun(block, kernel_));
    }
  }
};

} // namespace

void begin_watch(const orActivity& activity, bool is_outermost) {
  if (is_outermost) {
    suspects->clear(); // left from a session that ended within a kernel
  }
  Suspects& mine = suspects->emplace_back();
  mine.all = !activity.operands;
  for (const Access& access : collect(activity)) {
    mine.addresses.push_back(access.extent.begin);
  }
}

void end_watch(const orActivity& activity, Site site) {
  if (suspects->empty()) { // the kernel began before the session
    return;
  }
  const Suspects mine = std::move(suspects->back());
  suspects->pop_back();
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  DamageSearch search(activity, site);
  if (mine.all) {
    search.look_behind_all();
  }
  search.look_behind(mine.addresses);
  search.look_behind_freed();
  search.look_before(mine.addresses);
  if (activity.correlation != 0) { // the kernel was queued, so this thread may be one of the device
    add_late_reports(search.found);
  } else {
    add_new_reports(search.found);
  }
}

} // namespace c10::openreg::sanitizer
