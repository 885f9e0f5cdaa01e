#include "runtime/OpenRegWait.h"

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"
#include "runtime/OpenRegTrace.h"

namespace c10::openreg {

void notify_wait(orStream_t stream) {
  trace([&](const auto& tracer) {
    orStream_t main = nullptr;
    int device = -1;
    OPENREG_CHECK(orStreamGetDevice(stream, &device));
    OPENREG_CHECK(orDeviceGetDefaultStream(&main, device));
    tracer.trace_gpu_stream_synchronization(
        identity.type,
        stream == main ? 0 : trace_id(stream)); // tracers know the default stream as 0, as on CUDA
  });
  orNoteWait(stream, nullptr);
}

} // namespace c10::openreg
