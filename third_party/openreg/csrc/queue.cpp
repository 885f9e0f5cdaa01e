#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "ipc_event.h"
#include "scheduler_state.h"

// The queue of a stream: work, records of events, and waits for other streams, in the order of the calls. This file
// adds items, and removes them when they are done; engine.cpp runs the work. Everything here happens under the
// scheduler's lock.
namespace openreg {

void setBusy(const StreamPtr& stream, bool busy) {
  if (busy == stream->busy) {
    return;
  }
  stream->busy = busy;
  auto& active = scheduler->active;
  if (busy) {
    stream->activeIndex = active.size();
    active.push_back(stream);
  } else {
    active.back()->activeIndex = stream->activeIndex;
    std::swap(active[stream->activeIndex], active.back());
    active.pop_back();
  }
}

void reach(Event& event, uint64_t number) {
  if (event.timing) {
    event.nanoseconds = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  if (event.shared) {
    event.shared->reach(number);
  }
}

namespace {

// Counts one more item of the stream as done, and adds the streams that waited for it to `released`.
void complete(Locked& locked, const StreamPtr& stream, std::vector<StreamPtr>& released) {
  const uint64_t done = ++stream->completed;
  if (done >= stream->progressAt) {
    stream->progressAt = std::numeric_limits<uint64_t>::max();
    locked.wakeLater(stream);
  }
  std::erase_if(stream->blocked, [&](auto& waiting) {
    if (waiting.first > done) {
      return false;
    }
    released.push_back(std::move(waiting.second));
    return true;
  });
}

// Removes items from the queue of a stream that runs nothing now, until an item must run or must wait for another
// stream. Adds the streams that waited for the removed items to `released`.
void moveOnAlone(Locked& locked, const StreamPtr& stream, std::vector<StreamPtr>& released) {
  if (stream->hostKernel) {
    return; // the end of that kernel calls moveOn()
  }
  while (!stream->queue.empty()) {
    Item& item = stream->queue.front();
    if (std::holds_alternative<Work>(item)) {
      makeReady(locked, stream);
      return;
    }
    if (const Mark* mark = std::get_if<Mark>(&item)) {
      if (!mark->reached()) {
        mark->stream->blocked.emplace_back(mark->count, stream);
        return;
      }
    } else {
      const Record& record = std::get<Record>(item);
      Event& event = *record.event;
      const bool isLast = event.mark.stream == stream && event.mark.count == stream->completed + 1;
      if (isLast || event.shared) { // other processes may wait for an earlier record
        reach(event, record.number);
      }
    }
    stream->queue.pop_front();
    complete(locked, stream, released);
  }
  giveUp(locked, stream);
}

void moveOn(Locked& locked, const StreamPtr& first, std::vector<StreamPtr>& released) {
  moveOnAlone(locked, first, released);
  while (!released.empty()) { // no recursion: a chain of streams, each of which waits for the next, can be long
    const StreamPtr next = std::move(released.back());
    released.pop_back();
    moveOnAlone(locked, next, released);
  }
  runNext(locked);
}

} // namespace

void completeAndMoveOn(Locked& locked, const StreamPtr& stream) {
  std::vector<StreamPtr> released;
  complete(locked, stream, released);
  moveOn(locked, stream, released);
}

void moveOn(Locked& locked, const StreamPtr& stream) {
  std::vector<StreamPtr> released;
  moveOn(locked, stream, released);
}

void push(Locked& locked, const StreamPtr& stream, Item&& item) {
  claim(stream);
  const bool idle = isIdle(*stream);
  bool isNeeded = stream->kernelsWaiting > 0; // those kernels wait for this item too
  if (Work* const work = std::get_if<Work>(&item)) {
    work->number = ++scheduler->numbers;
    isNeeded = isNeeded || (work->deferred != nullptr && waitsForOthers()); // the others may need it first
  }
  stream->queue.push_back(std::move(item));
  ++stream->submitted;
  if (isNeeded) {
    need(*stream, stream->submitted);
  }
  if (idle) {
    moveOn(locked, stream);
  } else if (order != nullptr) {
    runNext(locked); // a replay may have waited for this call
  }
}

} // namespace openreg
