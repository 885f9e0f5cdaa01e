#include "activity.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "error.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"
#include "windows.h"

unsigned int orObservedKinds = 0;

// Subscribers form a list. They are never deleted, because a thread may be walking through the list at any time. The
// object of a subscriber that has left is reused for a later subscription. Otherwise the list, which each activity
// walks, would grow with every step that a program profiles.
struct orSubscriber {
  // Threads read `fn` and `userData` after they have increased `running` and seen `subscribed`. Both members are
  // written only while `subscribed` is false and `running` is 0.
  orActivityFn_t fn = nullptr;
  void* userData = nullptr;
  std::atomic<unsigned int> kinds{0};
  std::atomic<orSubscriber*> next{nullptr};
  std::atomic<bool> subscribed{false};
  std::atomic<int> running{0};
};

namespace openreg {
namespace {

std::atomic<orSubscriber*> first{nullptr};
// Guards changes of the list. A thread that holds this lock takes no other lock. A forked child does not take this
// lock, because a thread of the parent may have held it during the fork.
std::mutex subscriptions;
std::atomic<uint64_t> lastId{0};

void tell(const orActivity& activity) {
  if (thisThread.tells) {
    return;
  }
  const KeptError kept;
  thisThread.tells = true;
  thisThread.stop = orSuccess;
  for (orSubscriber* each = first.load(std::memory_order_acquire); each != nullptr; each = each->next) {
    if (each->subscribed && (each->kinds & activity.kind) != 0) {
      ++each->running;
      if (each->subscribed) { // `subscribed` may have changed before `running` was increased
        each->fn(&activity, each->userData);
      }
      --each->running;
    }
  }
  thisThread.tells = false;
}

orActivity describe(orActivityKind kind, orActivityPhase phase, int device, orStream_t stream, const orKernel& what) {
  orActivity activity{};
  activity.kind = kind;
  activity.phase = phase;
  activity.device = device;
  activity.stream = stream;
  activity.name = what.name != nullptr ? what.name : "kernel";
  activity.operands = what.operands;
  activity.data = what.data;
  return activity;
}

// Tells the subscribers about an activity. If the activity happens within a call of this thread that subscribers are
// told about, the call's id is the activity's `correlation`.
void tellWithin(orActivity activity) {
  activity.id = ++lastId;
  activity.correlation = currentCall();
  tell(activity);
}

void visitRange(void* operand, orOperandFn_t visit, void* context) {
  visit(static_cast<const orOperand*>(operand), context);
}

// To be called with the lock held.
void publishObservedKinds() {
  unsigned int kinds = interceptor ? interceptor->activityKinds() : 0;
  for (const orSubscriber* each = first; each != nullptr; each = each->next) {
    kinds |= each->subscribed ? each->kinds.load() : 0;
  }
  __atomic_store_n(&orObservedKinds, kinds, __ATOMIC_RELEASE);
}

// Returns a free subscriber that comes behind all subscribed ones in the list, so that subscribers are called in the
// order of their subscription. To be called with the lock held.
orSubscriber* freeSubscriber() {
  std::atomic<orSubscriber*>* place = &first;
  for (std::atomic<orSubscriber*>* at = &first; *at != nullptr; at = &(*at).load()->next) {
    if ((*at).load()->subscribed || (*at).load()->running > 0) {
      place = &(*at).load()->next;
    }
  }
  if (*place == nullptr) {
    place->store(new orSubscriber());
  }
  return *place;
}

void note(orActivityKind kind, const char* name, const void* devPtr, size_t size, orStream_t stream) {
  const auto address = reinterpret_cast<uintptr_t>(devPtr);
  if (orIsObserved(kind) && isStarted()) {
    tellRange(kind, windows.containsDevice(address) ? windows.deviceOf(address) : -1, stream, name, devPtr, size);
  }
}

} // namespace

ActivityId tellBegin(
    orActivityKind kind,
    int device,
    orStream_t stream,
    const orKernel& what,
    uint64_t correlation,
    const void* object) {
  orActivity activity = describe(kind, orActivityBegin, device, stream, what);
  activity.id = ++lastId;
  activity.correlation = correlation;
  activity.object = object;
  tell(activity);
  return {activity.id, correlation};
}

void tellEnd(
    orActivityKind kind,
    int device,
    orStream_t stream,
    const orKernel& what,
    ActivityId id,
    bool failed,
    const void* object) {
  orActivity activity = describe(kind, orActivityEnd, device, stream, what);
  activity.id = id.id;
  activity.correlation = id.correlation;
  activity.failed = failed;
  activity.object = object;
  if (failed) {
    activity.operands = nullptr; // `operands` would visit the results, which a failed kernel may have deleted
  }
  tell(activity);
}

void tellRange(orActivityKind kind, int device, orStream_t stream, const char* name, const void* data, size_t size) {
  orOperand range{data, size, 0, nullptr, nullptr, 0};
  tellWithin(describe(kind, orActivityPoint, device, stream, {name, visitRange, &range}));
}

orError_t tellLaunch(int device, orStream_t stream, const orKernel& what) {
  tellWithin(describe(orActivityLaunch, orActivityPoint, device, stream, what));
  return takeStop();
}

orError_t tellNode(int device, orStream_t stream, const orKernel& what, uintptr_t graph, size_t number) {
  orActivity activity = describe(orActivityNode, orActivityPoint, device, stream, what);
  const orCapturedNode node{graph, number};
  activity.object = &node;
  tellWithin(activity);
  return takeStop();
}

orError_t takeStop() {
  const orError_t stop = std::exchange(thisThread.stop, orSuccess);
  return stop == orSuccess ? orSuccess : fail(stop, "a subscriber (openreg_activity.h) stopped the call");
}

void tellHandle(orActivityPhase phase, const char* name, const void* object, size_t size) {
  orOperand range{object, size, 0, nullptr, nullptr, 0};
  orActivity activity =
      describe(orActivityHandle, phase, -1, nullptr, {name, size != 0 ? visitRange : nullptr, &range});
  activity.object = object;
  tellWithin(activity);
}

uint64_t currentCall() {
  return thisThread.call;
}

void ObservedCall::begin(orActivityKind kind, const char* name, int device, const Stream* stream, const void* object) {
  kind_ = kind;
  name_ = name;
  device_ = device;
  stream_ = stream != nullptr ? stream->handle : nullptr;
  object_ = object;
  outer_ = thisThread.call;
  id_ = tellBegin(kind_, device_, stream_, {name_, nullptr, nullptr}, 0, object_);
  thisThread.call = id_.id;
}

void ObservedCall::end() {
  thisThread.call = outer_;
  tellEnd(kind_, device_, stream_, {name_, nullptr, nullptr}, id_, false, object_);
}

void updateObservedKinds() {
  const std::lock_guard lock(subscriptions);
  publishObservedKinds();
}

} // namespace openreg

using namespace openreg;

orError_t orActivitySubscribe(orSubscriber_t* subscriber, orActivityFn_t fn, void* userData, unsigned int kinds) {
  enter(__func__);
  if (isInBadFork()) {
    return start(); // which returns the error of a forked child
  }
  if (subscriber == nullptr || fn == nullptr) {
    return fail(orErrorInvalidValue, "%s is NULL", subscriber == nullptr ? "subscriber" : "fn");
  }
  if (kinds == 0 || (kinds & ~(orActivityAll | orActivityNode)) != 0) {
    return fail(orErrorInvalidValue, "kinds is %u; join values of orActivityKind, or pass orActivityAll", kinds);
  }
  const std::lock_guard lock(subscriptions);
  orSubscriber* const added = freeSubscriber();
  added->fn = fn;
  added->userData = userData;
  added->kinds = kinds;
  added->subscribed = true; // last: from now on it is called
  publishObservedKinds();
  *subscriber = added;
  return orSuccess;
}

orError_t orActivityUnsubscribe(orSubscriber_t subscriber) {
  enter(__func__);
  if (isInBadFork()) {
    return orSuccess;
  }
  {
    const std::lock_guard lock(subscriptions);
    const orSubscriber* known = first;
    while (known != nullptr && known != subscriber) {
      known = known->next;
    }
    if (known == nullptr || !subscriber->subscribed.exchange(false)) {
      return fail(orErrorInvalidResourceHandle, "subscriber %p does not exist", (void*)subscriber);
    }
    publishObservedKinds();
  }
  if (!thisThread.tells && subscriber->running > 0) {
    void* const token = beforeWait();
    while (subscriber->running > 0) {
      std::this_thread::yield();
    }
    if (token != nullptr) {
      afterWait(token);
    }
  }
  return orSuccess;
}

void orNoteAllocation(const void* devPtr, size_t size, orStream_t stream) {
  note(orActivityAllocation, "orNoteAllocation", devPtr, size, stream);
}

void orNoteFree(const void* devPtr, size_t size, orStream_t stream) {
  note(orActivityFree, "orNoteFree", devPtr, size, stream);
}

void orNoteUse(const void* devPtr, orStream_t stream) {
  note(orActivityUse, "orNoteUse", devPtr, 1, stream);
}

void orNoteWait(orStream_t stream, orEvent_t event) {
  if (orIsObserved(orActivitySynchronization) && isStarted()) {
    orActivity activity =
        describe(orActivitySynchronization, orActivityPoint, -1, stream, {"orNoteWait", nullptr, nullptr});
    activity.object = event;
    tellWithin(activity);
  }
}

void orActivityStop(orError_t error) {
  if (thisThread.tells) {
    thisThread.stop = error;
  }
}
