#include "simulator/sanitizer/Observer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"
#include "simulator/sanitizer/Accesses.h"
#include "simulator/sanitizer/InitCheck.h"
#include "simulator/sanitizer/MemoryCheck.h"
#include "simulator/sanitizer/RaceCheck.h"
#include "simulator/sanitizer/RedZoneWatch.h"
#include "simulator/sanitizer/Replays.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

// One bit for each kernel that this thread is in. 1: the kernel does not name its operands.
thread_local uint64_t untold_kernels = 0;
thread_local RunningOperator* running_operator = nullptr;
thread_local Site kernel_site = 0; // the line of the last work that this thread has begun

bool is_copy(const orActivity& activity) {
  return std::strcmp(activity.name, "memcpy") == 0;
}

bool is_copy_or_fill(const orActivity& activity) {
  return is_copy(activity) || std::strcmp(activity.name, "memset") == 0;
}

void stamp(std::vector<Access>& accesses, const orActivity& activity, Actor actor, uint64_t time, Site site) {
  for (Access& access : accesses) {
    access.actor = actor;
    access.time = time;
    access.site = site;
    access.name = running_operator && is_copy_or_fill(activity) ? running_operator->name : activity.name;
    access.stream = activity.stream;
    access.device = activity.device;
  }
}

// Adds what the operator that the calling thread is in knows of the work.
void add_tensors(const orActivity& activity, std::vector<Access>& accesses) {
  for (const auto& [tensor, is_written] : running_operator->tensors) {
    const unsigned access = is_written ? orAccessRead | orAccessWrite : orAccessRead;
    if (!activity.operands) {
      if (running_operator->is_custom && is_device_tensor(tensor)) {
        visit_tensor(*tensor.unsafeGetTensorImpl(), access, collect_operand, &accesses);
      }
    } else if (is_copy_or_fill(activity)) {
      std::vector<Access> whole;
      visit_tensor(*tensor.unsafeGetTensorImpl(), access, collect_operand, &whole);
      for (Access& each : accesses) {
        if (!whole.empty() && each.extent == whole.front().extent) { // not the strides: bytes are copied, not elements
          each.shape = whole.front().shape;
          each.item = whole.front().item;
        }
      }
    }
  }
}

// To be called with the lock held. Adds the memory that the custom operator of this thread has allocated and not freed,
// for a kernel that does not name its operands: the operator's results may lie in this memory.
void add_results(orStream_t stream, std::vector<Access>& accesses) {
  for (const auto& [begin, order] : running_operator->allocated) {
    const ShadowBlock* const block = session->shadow.find(begin);
    if (block && block->order == order && block->stream == stream) {
      accesses.push_back({.action = Access::Action::Write, .reads = false});
      accesses.back().extent = Extent(reinterpret_cast<const void*>(begin), block->size);
    }
  }
}

bool is_on_this_thread(const orActivity& activity) {
  return activity.kind == orActivityKernel && activity.correlation == 0;
}

void stop_if_pending() {
  if (has_pending()) {
    orActivityStop(orErrorAssert);
  }
}

// A copy to pageable memory is done when the call returns, even if the call was asked not to wait.
bool is_copy_to_pageable_memory(const orActivity& activity, const std::vector<Access>& accesses) {
  return is_copy(activity) && std::any_of(accesses.begin(), accesses.end(), [](const Access& access) {
           orPointerAttributes attributes{};
           orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(access.extent.begin));
           return access.writes() && attributes.type == orMemoryTypeUnregistered;
         });
}

// The block of the access. Pinned memory that was allocated before the session is added here, because the allocator of
// pinned memory cannot list its blocks. Each of these blocks is one allocation of the device library.
ShadowBlock* find_or_add_pinned(const Access& access) {
  if (ShadowBlock* const block = session->shadow.find(access.extent.begin)) {
    return block;
  }
  orPointerAttributes attributes{};
  orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(access.extent.begin));
  return attributes.type == orMemoryTypeHost && attributes.base ? &session->shadow.add(attributes.base, attributes.size)
                                                                : nullptr;
}

// To be called with the lock held. Calls fn(block, is_written) for each block that the work may use. `is_told`: the
// work names its operands; otherwise it may write all memory.
template <class Fn>
void for_each_block(const std::vector<Access>& accesses, bool is_told, const Fn& fn) {
  for (const Access& access : accesses) {
    if (ShadowBlock* const block = session->shadow.find(access.extent.begin)) {
      fn(*block, access.writes());
    }
  }
  if (!is_told) {
    for (auto& [begin, block] : session->shadow.blocks()) {
      fn(block, true);
    }
  }
}

// To be called with the lock held. Notes which blocks have been written last.
void note_written(const orActivity& activity, const std::vector<Access>& accesses) {
  if (!(session->checks & kGraph)) {
    return;
  }
  ++session->writes;
  for_each_block(accesses, activity.operands != nullptr, [](ShadowBlock& block, bool is_written) {
    if (is_written) {
      block.last_write = std::max(block.last_write, session->writes);
    }
  });
}

// To be called with the lock held. Keeps the accesses of work that begins and that no finding stops.
void note_work(const orActivity& activity, bool tells_results, Actor actor, Site site, std::vector<Access>& accesses) {
  if (session->checks & kMemory && tells_results) {
    Launch& launch = session->launches[activity.correlation];
    launch.site = site;
    launch.order = session->order;
    launch.kernels += !is_copy_or_fill(activity);
    for (const Access& access : accesses) {
      if (const ShadowBlock* const block = session->shadow.find(access.extent.begin); block && block->has_red_zone) {
        launch.blocks.push_back(
            {.begin = block->begin,
             .size = block->size,
             .stream = block->stream,
             .device = block->device,
             .site = block->site,
             .order = block->order,
             .has_red_zone = true});
      }
    }
  }
  if (session->checks & kInit && !activity.operands) {
    forget_unwritten(session->shadow);
  } else if (session->checks & kInit && tells_results) {
    note_writes(session->shadow, activity.name, accesses);
  }
  const bool waits = is_copy_to_pageable_memory(activity, accesses);
  note_written(activity, accesses);
  if (session->checks & kRace) {
    for (Access& access : accesses) {
      if (ShadowBlock* const block = find_or_add_pinned(access)) {
        if (block->device < 0 && !access.writes() && !may_be_written(*block, access.extent, session->clocks)) {
          session->pinned_sources.add(access);
        }
        keep_access(*block, std::move(access), session->clocks);
      }
    }
  }
  if (waits) {
    session->clocks.host_waits(actor);
  }
}

// To be called with the lock held, after a wait of the host: the host may now know that more copies are done.
void check_pinned_sources() {
  std::vector<Report> found;
  session->pinned_sources.check_done(session->clocks, found);
  add_new_reports(found);
}

// To be called with the lock held. `block`: the block where the access begins; null if there is none.
void check_bounds(const ShadowBlock* block, const Access& access, std::vector<Report>& found) {
  if (!block) {
    if (const auto* const freed = session->shadow.find_freed(access.extent.begin)) {
      found.push_back(make_use_after_free(access, freed->size, freed->allocated, freed->freed));
      return;
    }
    block = session->shadow.find_before(access.extent.begin);
    if (!block || !block->has_red_zone || access.extent.begin >= red_zone_of(*block).end) {
      return;
    }
  }
  if (access.extent.end > block->begin + block->size) {
    found.push_back(make_out_of_bounds(*block, access));
  }
}

// To be called with the lock held. As for_each_block().
void note_growth(Site outer, const std::vector<Access>& accesses, bool is_told) {
  session->growth.enter(outer);
  for_each_block(accesses, is_told, [](ShadowBlock& block, bool) { session->growth.note_use(block); });
}

// Work begins: it is about to be launched, or it is a kernel that begins on this thread. Activities of both kinds come
// in the order of the program. `tells_results`: the operands contain the results already (a launch).
void begin_work(const orActivity& activity, bool tells_results) {
  const auto [site, outer] = current_sites(watches_growth.load(std::memory_order_relaxed));
  kernel_site = site;
  std::vector<Access>& accesses = collect(activity);
  if (running_operator) {
    add_tensors(activity, accesses);
  }
  {
    const std::lock_guard lock(session_mutex);
    if (!session) {
      return;
    }
    if (orKernelDepth() == (activity.kind == orActivityKernel)) { // not within another kernel, so not on the device
      take_late_report();
    }
    if (running_operator && !activity.operands) {
      add_results(activity.stream, accesses);
    }
    const CapturedNode* const node = next_node(activity);
    if (node && node->is_internal) {
      return;
    }
    if (session->checks & kLeak) {
      note_growth(outer, accesses, activity.operands != nullptr);
    }
    std::vector<Report> found;
    const Actor actor = session->clocks.actor_of(activity.stream);
    stamp(accesses, activity, actor, session->clocks.step(actor), site);
    if (session->checks & kInit && activity.operands) {
      for (const Access& access : accesses) {
        if (access.writes()) {
          find_or_add_pinned(access);
        }
      }
      check_reads(session->shadow, activity.name, accesses, !session->raises, found);
    }
    for (const Access& access : accesses) {
      const ShadowBlock* const block = session->shadow.find(access.extent.begin);
      if (session->checks & kRace && block) {
        find_races(*block, access, session->clocks, found);
        if (block->device < 0 && access.writes()) {
          session->pinned_sources.check_overlapping(access.extent, found);
        }
      }
      if (session->checks & kMemory && (!node || check_captured(*node, access, found))) {
        check_bounds(block, access, found);
      }
    }
    const bool stops = session->raises && (has_pending() || !found.empty());
    if (stops) { // the work does not run: keeps at most one finding about it, and none of its accesses
      found.resize(has_pending() ? 0 : 1);
    } else {
      note_work(activity, tells_results, actor, site, accesses);
    }
    add_new_reports(found);
  }
}

// A kernel that began on this thread has ended, and names its results.
void end_work(const orActivity& activity) {
  if (!activity.operands) {
    return;
  }
  std::vector<Access>& accesses = collect(activity);
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  if (session->checks & kLeak) {
    note_growth(0, accesses, true);
  }
  std::vector<Report> found;
  const Actor actor = session->clocks.actor_of(activity.stream);
  stamp(accesses, activity, actor, session->clocks.now(actor), kernel_site);
  if (session->checks & kInit) {
    note_writes(session->shadow, activity.name, accesses);
  }
  note_written(activity, accesses);
  if (session->checks & kRace) {
    for (Access& access : accesses) {
      if (access.writes()) {
        if (ShadowBlock* const block = session->shadow.find(access.extent.begin)) {
          find_races(*block, access, session->clocks, found);
          keep_access(*block, std::move(access), session->clocks);
        }
      }
    }
  }
  add_new_reports(found);
}

// To be called with the lock held. Adds memory that belongs to no allocator, but directly to the program or a library.
void add_memory(const Extent& extent, int device, Site site, bool is_new) {
  ShadowBlock& block = session->shadow.add(reinterpret_cast<const void*>(extent.begin), extent.run);
  block.device = device;
  block.site = site;
  if (session->checks & kInit && is_new) {
    block.unwritten.add(extent);
  }
}

// To be called with the lock held. Adds memory of another process, which may write it at any time.
void add_opened_memory(const void* address, Site site) {
  orPointerAttributes attributes{};
  orPointerGetAttributes(&attributes, address);
  if (attributes.type == orMemoryTypeDevice && !session->shadow.find(reinterpret_cast<uintptr_t>(address))) {
    add_memory({address, attributes.size}, attributes.device, site, false);
  }
}

void allocate(const orActivity& activity) {
  const std::vector<Access>& memory = collect(activity);
  if (memory.empty()) {
    return;
  }
  const Extent& extent = memory.front().extent;
  // Memory of orMalloc() is a segment of the allocator (is_internal_call()), or memory of the program. The allocator
  // itself reports the blocks of a segment.
  if (std::strcmp(activity.name, "orMalloc") == 0) {
    const Site site = is_internal_call() ? 0 : current_site();
    const std::lock_guard lock(session_mutex);
    if (session) {
      session->shadow.forget_freed(extent.begin, extent.run);
      if (!is_internal_call()) {
        session->handles[reinterpret_cast<const void*>(extent.begin)] = {
            .name = activity.name, .site = site, .order = ++session->order};
        add_memory(extent, activity.device, site, true);
      }
    }
    return;
  }
  const auto [site, outer] = current_sites(watches_growth.load(std::memory_order_relaxed));
  const bool has_red_zone = red_zone.load(std::memory_order_relaxed) != 0 && activity.stream;
  if (has_red_zone) {
    ShadowBlock block;
    block.begin = extent.begin;
    block.size = extent.run;
    fill_red_zone(red_zone_of(block), activity.stream);
  }
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  if (session->checks & kRace) {
    std::vector<Report> found;
    settle_early_frees(activity.stream ? session->clocks.actor_of(activity.stream) : kHost, found);
    add_new_reports(found);
  }
  ShadowBlock& block = session->shadow.add(reinterpret_cast<const void*>(extent.begin), extent.run);
  block.stream = activity.stream;
  block.device = activity.device;
  block.site = site;
  block.order = is_internal_call() ? 0 : ++session->order; // what the runtime keeps is no leak
  block.has_red_zone = has_red_zone;
  if ((session->checks & kLeak) && block.order != 0) {
    session->growth.enter(outer);
    session->growth.note_allocation(block);
  }
  if (running_operator && running_operator->is_custom) {
    running_operator->allocated.emplace_back(block.begin, block.order);
  }
  // Memory that a kernel allocates counts as written if the kernel does not name its operands: it may write the memory.
  if (session->checks & kInit && activity.device >= 0 && untold_kernels == 0) {
    block.unwritten.add(extent);
  }
}

// orFree() frees the memory at `address`.
void free_memory(uintptr_t address) {
  {
    const std::lock_guard lock(session_mutex);
    const ShadowBlock* const block = session ? session->shadow.find(address) : nullptr;
    const bool is_of_graph = block && block->is_of_graph;
    if (!session || (session->handles.erase(reinterpret_cast<const void*>(address)) == 0 && !is_of_graph)) {
      return; // a segment, whose blocks the allocator reports, or memory from before the session
    }
  }
  const Site site = current_site();
  const std::lock_guard lock(session_mutex);
  if (const ShadowBlock* const block = session ? session->shadow.find(address) : nullptr) {
    session->shadow.remove(*block, site);
  }
}

void free(const orActivity& activity) {
  const bool is_block = std::strcmp(activity.name, "orFree") != 0; // an allocator's block; false: memory of orMalloc()
  const Site site = is_block && red_zone.load(std::memory_order_relaxed) != 0 ? current_site() : 0;
  const std::vector<Access>& memory = collect(activity);
  if (!is_block) {
    if (!memory.empty()) {
      free_memory(memory.front().extent.begin);
    }
    return;
  }
  std::vector<EarlyFree> early;
  {
    const std::lock_guard lock(session_mutex);
    ShadowBlock* const block = session && !memory.empty() ? session->shadow.find(memory.front().extent.begin) : nullptr;
    if (!block) {
      return;
    }
    const bool is_pinned = block->device < 0;
    if (session->checks & kRace && is_pinned) {
      std::vector<Report> found;
      session->pinned_sources.check_overlapping(memory.front().extent, found);
      add_new_reports(found);
    }
    if (session->checks & kRace && (block->stream || is_pinned)) {
      Access access{.action = Access::Action::Free, .name = "the last reference", .stream = block->stream};
      access.actor = is_pinned ? kHost : session->clocks.actor_of(block->stream);
      access.device = block->device;
      access.extent = Extent(reinterpret_cast<const void*>(block->begin), block->size);
      for (Access& user : find_users(*block, access, session->clocks)) {
        if (is_pinned && std::strncmp(user.name, "aten::", 6) == 0) {
          continue; // a queued operator keeps its host operands until it has run
        }
        early.push_back({access, std::move(user), block->size, block->site});
      }
    }
    if (session->checks & kLeak) {
      session->growth.note_free(*block);
    }
    session->shadow.remove(*block, site);
  }
  if (!early.empty()) { // rare, so the program's line is looked up only in this case
    const Site line = current_site();
    const std::lock_guard lock(session_mutex);
    for (EarlyFree& each : early) {
      each.free.site = line;
      if (session) {
        session->early_frees.push_back(std::move(each));
      }
    }
  }
}

void note_use(const orActivity& activity) {
  const std::vector<Access>& memory = collect(activity);
  const std::lock_guard lock(session_mutex);
  if (!session || memory.empty()) {
    return;
  }
  const Extent& extent = memory.front().extent;
  if (!activity.stream) { // whoever gets the memory may use it at any time
    session->shadow.forget_unwritten(extent.begin, extent.run);
    if (ShadowBlock* const block = session->shadow.find(extent.begin)) {
      block->round = 0;
      block->last_write = UINT64_MAX;
    }
  } else if (ShadowBlock* const block = session->shadow.find(extent.begin)) {
    block->users.push_back(session->clocks.actor_of(activity.stream));
  }
}

void synchronize(const orActivity& activity) {
  const std::string_view name(activity.name);
  const auto event = static_cast<orEvent_t>(const_cast<void*>(activity.object));
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  Clocks& clocks = session->clocks;
  if (name == "orEventRecord") {
    clocks.record(event, clocks.actor_of(activity.stream));
  } else if (name == "orStreamWaitEvent") {
    clocks.wait(clocks.actor_of(activity.stream), event);
  } else if (name == "orDeviceSynchronize") {
    clocks.host_waits_for_device(activity.device);
    check_pinned_sources();
  } else if (event) { // orEventSynchronize, orNoteWait
    clocks.wait(kHost, event);
    check_pinned_sources();
  } else if (activity.stream) { // orStreamSynchronize, orNoteWait, and copies that wait
    clocks.host_waits(clocks.actor_of(activity.stream));
    check_pinned_sources();
  }
}

void note_handle(const orActivity& activity) {
  const bool is_new = activity.phase == orActivityBegin && !is_internal_call();
  const Site site = is_new ? current_site() : 0;
  const std::vector<Access>& memory = collect(activity);
  const std::lock_guard lock(session_mutex);
  if (!session) {
    return;
  }
  if (activity.phase == orActivityBegin) {
    if (!is_new) {
      return;
    }
    Handle& handle = session->handles[activity.object];
    const bool is_opening = std::strcmp(activity.name, "orIpcOpenMemHandle") == 0;
    handle = {activity.name, site, is_opening && handle.name ? handle.openings + 1 : 1, ++session->order};
    if (is_opening) {
      add_opened_memory(activity.object, site);
    }
    return;
  }
  if (std::strcmp(activity.name, "orIpcCloseMemHandle") == 0) {
    const auto handle = session->handles.find(activity.object);
    if (handle != session->handles.end() && --handle->second.openings > 0) {
      return;
    }
    if (const ShadowBlock* const block = session->shadow.find(reinterpret_cast<uintptr_t>(activity.object))) {
      session->shadow.forget(block->begin, block->size);
    }
  }
  if (!memory.empty()) { // pinned memory: other host memory may get its addresses
    session->shadow.forget(memory.front().extent.begin, memory.front().extent.run);
  }
  session->handles.erase(activity.object);
  session->clocks.forget(static_cast<orEvent_t>(const_cast<void*>(activity.object)));
}

bool is_wait(std::string_view name) {
  return name == "orStreamSynchronize" || name == "orDeviceSynchronize" || name == "orEventSynchronize" ||
         name == "orMemcpy" || name == "orMemset" || name == "orMemcpyWithStream";
}

// Whether the clocks change at this activity. An order between streams holds for work that is launched after the call,
// so it counts at the beginning of the call. The host knows that work is done only when its wait has ended, so a wait
// counts at its end.
bool orders(const orActivity& activity) {
  if (activity.phase == orActivityPoint) {
    return true;
  }
  return is_wait(activity.name) ? activity.phase == orActivityEnd
                                : activity.phase == orActivityBegin && activity.object != nullptr;
}

} // namespace

void observe(const orActivity* activity, void*) {
  switch (activity->kind) {
    case orActivityLaunch:
      if (!is_internal_call()) {
        begin_work(*activity, true);
        stop_if_pending();
      }
      return;
    case orActivityKernel:
      if (activity->phase == orActivityBegin) {
        untold_kernels = untold_kernels << 1 | (activity->operands == nullptr);
        if (red_zone.load(std::memory_order_relaxed) != 0) {
          begin_watch(*activity, orKernelDepth() == 1);
        }
        if (is_on_this_thread(*activity)) {
          begin_work(*activity, false);
          stop_if_pending();
        }
      } else {
        untold_kernels >>= 1;
        if (red_zone.load(std::memory_order_relaxed) != 0) {
          end_watch(*activity, kernel_site);
        }
        if (is_on_this_thread(*activity)) {
          end_work(*activity);
        }
      }
      return;
    case orActivityAllocation:
      return allocate(*activity);
    case orActivityFree:
      return free(*activity);
    case orActivityUse:
      return note_use(*activity);
    case orActivityHandle:
      return note_handle(*activity);
    case orActivityNode:
      note_node(*activity);
      if (!is_internal_call()) {
        stop_if_pending();
      }
      return;
    case orActivityCall:
      if (std::strcmp(activity->name, "orGraphLaunch") == 0) {
        return activity->phase == orActivityBegin ? begin_replay(*activity) : end_replay(*activity);
      }
      [[fallthrough]];
    case orActivitySynchronization:
      if (!is_internal_call() && orders(*activity)) {
        synchronize(*activity);
      }
      return;
    default:
      return;
  }
}

void note_late_operands(orStream_t stream, DeviceIndex device, const orKernel& kernel) {
  if (running.load(std::memory_order_relaxed)) {
    orActivity activity{};
    activity.kind = orActivityKernel;
    activity.device = device;
    activity.stream = stream;
    activity.name = kernel.name;
    activity.operands = kernel.operands;
    activity.data = kernel.data;
    begin_work(activity, false);
  }
}

void count_as_written(const void* data, size_t size) {
  if (running.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(session_mutex);
    if (session) {
      session->shadow.forget_unwritten(reinterpret_cast<uintptr_t>(data), size);
    }
  }
}

bool is_in_kernel() {
  return orKernelDepth() > 0;
}

RunningOperator* exchange_running_operator(RunningOperator* op) {
  return std::exchange(running_operator, op);
}

} // namespace c10::openreg::sanitizer
