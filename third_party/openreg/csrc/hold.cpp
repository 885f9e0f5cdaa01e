#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "hooks.h"
#include "openreg_progress.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// orExecutionChaos: the device runs nothing on its own. Work that may run is *held* until somebody waits for it. Then
// the schedule (hooks.h) chooses which held item runs next, and the item runs alone, so the order of the items does not
// depend on time. Deferred work (orLaunchDeferred) is only begun, and another thread completes it at any time; the
// device shows this when no other item is left that somebody waits for.
namespace openreg {
namespace {

using Clock = std::chrono::steady_clock;

// An item is held while at most this many others run. A program may wait, in a loop that runs other work, for something
// that only this item does, such as a collective whose result nobody waits for.
constexpr uint64_t kLongestHold = 20'000;
// How long a query waits for an item, which may itself wait for the thread that asks.
constexpr std::chrono::milliseconds kLongestQuery{50};

const Work& firstWork(const Stream& stream) {
  return std::get<Work>(stream.queue.front());
}

bool isDeferred(const Item& item) {
  const Work* const work = std::get_if<Work>(&item);
  return work != nullptr && work->deferred != nullptr;
}

EngineState& engineOf(const Work& work) {
  return scheduler->engines[static_cast<size_t>(work.engine)];
}

bool isNeeded(const Stream& stream) {
  return stream.completed < stream.needed;
}

bool isOverdue(const Stream& stream) {
  return scheduler->ended - stream.heldAt >= kLongestHold;
}

bool isFree(const EngineState& engine) {
  return engine.ready.empty() && !engine.running;
}

// `what` the order says: "run", or "force" if the time decided.
void start(Locked& locked, StreamPtr stream, const char* what = "run") {
  if (order != nullptr) {
    order->advance(locked, *stream, what, firstWork(*stream).what.name);
  }
  std::erase(scheduler->held, stream);
  stream->hold = Hold::underWay;
  ++scheduler->underWay;
  EngineState& engine = engineOf(firstWork(*stream));
  engine.ready.push_back(std::move(stream));
  locked.wakeLater(engine);
}

// The device shows that the stream's deferred item is complete.
void show(Locked& locked, StreamPtr stream, const char* what = "show") {
  if (order != nullptr) {
    order->advance(locked, *stream, what, nullptr);
  }
  std::erase(scheduler->begun, stream);
  stream->hold = Hold::none;
  completeAndMoveOn(locked, stream);
}

// Asks the schedule. `isWanted(stream)`: whether the schedule is to take the stream as needed.
template <typename IsWanted>
StreamPtr choose(const std::vector<StreamPtr>& streams, const IsWanted& isWanted) {
  std::vector<HeldItem>& items = scheduler->choices;
  items.clear();
  for (const StreamPtr& stream : streams) {
    const Work& work = firstWork(*stream);
    items.push_back({stream.get(), isWanted(*stream), work.engine == Engine::copy, work.number});
  }
  return streams[schedule->choose(items)];
}

// In a replay: lets the item go on that the file has next. Returns its stream; null: it is not ready, or the file has a
// call next.
const Stream* followOrder(Locked& locked) {
  const auto isNext = [](const StreamPtr& stream) { return order->isNext(*stream); };
  const auto& held = scheduler->held;
  if (const auto next = std::find_if(held.begin(), held.end(), isNext); next != held.end()) {
    const StreamPtr stream = *next;
    if (scheduler->underWay > 0 && !isFree(engineOf(firstWork(*stream)))) {
      return nullptr;
    }
    start(locked, stream);
    return stream.get();
  }
  const auto& begun = scheduler->begun;
  const auto next = std::find_if(begun.begin(), begun.end(), isNext);
  if (next == begun.end() || (*next)->hold != Hold::arrived) {
    return nullptr;
  }
  const StreamPtr stream = *next;
  show(locked, stream);
  return stream.get();
}

// The held or arrived stream that `stream` waits for; null: there is none.
StreamPtr firstHeld(StreamPtr stream) {
  constexpr int kLongestPath = 256; // streams may wait for each other in a circle
  for (int step = 0; stream && step < kLongestPath; ++step) {
    if (stream->hold == Hold::held || stream->hold == Hold::arrived) {
      return stream;
    }
    const Mark* const mark = stream->hold == Hold::none && !stream->hostKernel && !stream->queue.empty()
                                 ? std::get_if<Mark>(&stream->queue.front())
                                 : nullptr;
    stream = mark != nullptr ? mark->stream : nullptr;
  }
  return nullptr;
}

} // namespace

void makeReady(Locked& locked, const StreamPtr& stream) {
  if (!isChaos()) {
    EngineState& engine = engineOf(firstWork(*stream));
    engine.ready.push_back(stream);
    locked.wakeLater(engine);
    return;
  }
  stream->hold = Hold::held;
  stream->heldAt = scheduler->ended;
  scheduler->held.push_back(stream);
  if (scheduler->held.size() == 1) {
    schedule->holding();
  }
}

// A wait for deferred work is a wait for other processes, which may need other deferred work of this process first: so
// all of it is needed. A GPU would have begun it, too.
void need(Stream& first, uint64_t count) {
  if (!isChaos()) {
    return;
  }
  std::vector<std::pair<Stream*, uint64_t>> next{{&first, count}}; // no recursion: a chain of streams can be long
  bool needsAllDeferred = false;
  while (!next.empty()) {
    const auto [stream, last] = next.back();
    next.pop_back();
    if (last <= stream->needed) {
      continue;
    }
    const uint64_t queued = stream->submitted - stream->queue.size(); // the number of items before the queue
    bool waits = stream->hold == Hold::begun;                         // for others
    for (uint64_t number = std::max(queued, stream->needed) + 1; number <= last; ++number) {
      const Item& item = stream->queue[number - queued - 1];
      if (const Mark* mark = std::get_if<Mark>(&item); mark != nullptr && mark->stream) {
        next.emplace_back(mark->stream.get(), mark->count);
      }
      waits = waits || isDeferred(item);
    }
    if (waits && !std::exchange(needsAllDeferred, true)) {
      for (const StreamPtr& each : scheduler->active) {
        const auto found = std::find_if(each->queue.rbegin(), each->queue.rend(), isDeferred);
        next.emplace_back(each.get(), each->submitted - (found - each->queue.rbegin()));
      }
    }
    stream->needed = last;
  }
}

void runNext(Locked& locked) {
  if (scheduler->underWay > 0) {
    return;
  }
  const auto& held = scheduler->held;
  const auto& begun = scheduler->begun;
  const auto isDue = [](auto& stream) { return isNeeded(*stream) || isOverdue(*stream); };
  if (order != nullptr && order->isReplay()) {
    if (std::any_of(begun.begin(), begun.end(), isDue) || std::any_of(held.begin(), held.end(), isDue)) {
      followOrder(locked);
    }
    return;
  }
  const auto overdue = std::find_if(held.begin(), held.end(), [](auto& stream) { return isOverdue(*stream); });
  if (overdue != held.end()) {
    return start(locked, *overdue);
  }
  if (std::any_of(held.begin(), held.end(), [](auto& stream) { return isNeeded(*stream); })) {
    return start(locked, choose(held, isNeeded));
  }
  const auto first = std::find_if(begun.begin(), begun.end(), isDue);
  if (first != begun.end() && (*first)->hold == Hold::arrived) {
    show(locked, *first);
  }
}

bool waitsForOthers() {
  const auto& begun = scheduler->begun;
  return std::any_of(
      begun.begin(), begun.end(), [](auto& stream) { return isNeeded(*stream) && stream->hold == Hold::begun; });
}

void require(Locked& locked, Stream& stream, uint64_t count) {
  need(stream, count);
  runNext(locked);
}

void endHeld(Locked& locked, Stream& stream) {
  if (stream.hold != Hold::underWay) {
    return;
  }
  stream.hold = Hold::none;
  --scheduler->underWay;
  ++scheduler->ended;
  for (const StreamPtr& asked : scheduler->asked) {
    locked.wakeLater(asked);
  }
}

void beginDeferred(const StreamPtr& stream) {
  Locked locked;
  if (stream->hold == Hold::underWay) {
    endHeld(locked, *stream);
    stream->hold = Hold::begun;
    scheduler->begun.push_back(stream);
    runNext(locked);
  }
}

bool holdCompletion(Locked& locked, Stream& stream) {
  if (stream.hold != Hold::begun) {
    return false;
  }
  stream.hold = Hold::arrived;
  runNext(locked);
  return true;
}

const Stream* forceNext(Locked& locked) {
  if (order != nullptr && order->isReplay()) {
    const Stream* const stream = followOrder(locked);
    if (stream == nullptr) {
      order->stuck();
    }
    return stream;
  }
  std::vector<StreamPtr> held;
  std::copy_if(scheduler->held.begin(), scheduler->held.end(), std::back_inserter(held), [](auto& stream) {
    return isFree(engineOf(firstWork(*stream)));
  });
  const auto& begun = scheduler->begun;
  const auto arrived = std::find_if(begun.begin(), begun.end(), [](auto& each) { return each->hold == Hold::arrived; });
  if (held.empty() && arrived == begun.end()) {
    return nullptr;
  }
  ++scheduler->forced;
  if (held.empty()) {
    const StreamPtr stream = *arrived;
    show(locked, stream, "force");
    return stream.get();
  }
  const bool nobodyWaits = std::none_of(held.begin(), held.end(), [](auto& stream) { return isNeeded(*stream); });
  const StreamPtr chosen = choose(held, [&](const Stream& stream) { return nobodyWaits || isNeeded(stream); });
  start(locked, chosen, "force");
  return chosen.get();
}

// A program that asks once, and does not look at the answer, must not get its work done. So every second query advances.
void advance(Locked& locked, const StreamPtr& stream) {
  if (!isChaos() || isRunningHere()) {
    return;
  }
  stream->isPolled = !stream->isPolled;
  if (stream->isPolled) {
    return;
  }
  const Clock::time_point deadline = Clock::now() + kLongestQuery;
  const auto waitUntilNothingRuns = [&] {
    scheduler->asked.push_back(stream);
    ++scheduler->waiting;
    sleepUntil(locked, *stream, true, [&] { return scheduler->underWay == 0 || Clock::now() >= deadline; });
    --scheduler->waiting;
    scheduler->asked.erase(std::find(scheduler->asked.begin(), scheduler->asked.end(), stream));
  };
  if (scheduler->underWay > 0) {
    waitUntilNothingRuns();
  }
  const StreamPtr found = firstHeld(stream);
  if (!found) {
    return;
  }
  if (order != nullptr && order->isReplay()) {
    if (followOrder(locked) != nullptr) {
      waitUntilNothingRuns();
    }
    return;
  }
  if (found->hold == Hold::arrived) {
    return show(locked, found);
  }
  if (scheduler->underWay == 0) {
    start(locked, choose(scheduler->held, [&](const Stream& each) { return &each == found.get(); }));
  } else if (isFree(engineOf(firstWork(*found)))) { // what is under way may wait for the thread that asks
    ++scheduler->forced;
    start(locked, found, "force");
  } else {
    return;
  }
  waitUntilNothingRuns();
}

void runHeld(Locked& locked) {
  const Clock::time_point deadline = Clock::now() + kLongestExit;
  const size_t before = scheduler->failures.size();
  for (const StreamPtr& stream : scheduler->active) {
    need(*stream, stream->submitted);
  }
  constexpr std::chrono::milliseconds kPoll{10};
  for (runNext(locked); scheduler->underWay > 0 && Clock::now() < deadline; runNext(locked)) {
    locked.release(); // wakes the thread of the item that has started
    locked.acquire();
    scheduler->stoppedRunning.wait_for(locked.lock(), kPoll);
  }
  printFailures(before);
  if (order != nullptr) {
    order->end();
  }
}

} // namespace openreg

using namespace openreg;

orError_t orGetForcedCount(uint64_t* count) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (count == nullptr) {
      return fail(orErrorInvalidValue, "count is NULL; pass the address of a number");
    }
    const Locked locked;
    *count = scheduler->forced;
    return orSuccess;
  });
}
