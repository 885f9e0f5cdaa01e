#include "simulator/Poison.h"

#include <c10/util/env.h>
#include <openreg_progress.h>

#include <cstring>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStream.h"

namespace c10::openreg {
namespace {

constexpr int kPoison = 0xFF; // NaN in every floating point type, -1 in the signed integers

} // namespace

bool poison_is_on() {
  static const bool on = c10::utils::get_env("OPENREG_POISON") == "1"; // `import torch` refuses all but 0 and 1
  return on;
}

void poison(const void* address, size_t size) {
  std::memset(orGetKernelPointer(address), kPoison, size);
}

orEvent_t queue_poison(void* address, size_t size, Stream stream) {
  const ObservedCalls calls(CallKind::Internal); // the program does not use the memory
  const orStream_t queue = OpenRegStream(stream).stream();
  OPENREG_CHECK(orMemsetAsync(address, kPoison, size, queue));
  if (capture_of(stream) != 0) { // each replay poisons the memory, before a later node of the stream gets it
    return nullptr;
  }
  const UnsafeCalls unsafe;
  const orEvent_t event = create_event(stream);
  OPENREG_CHECK(orEventRecord(event, queue));
  if (orEventPeek(event) == orErrorNotReady) {
    return event;
  }
  orEventDestroy(event);
  return nullptr;
}

} // namespace c10::openreg
