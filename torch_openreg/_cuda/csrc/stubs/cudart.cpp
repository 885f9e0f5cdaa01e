// libcudart.so: CUDA's runtime API (cuda_runtime_api.h) by the device library. The types of both have the same values
// and layouts, so that a call is passed on. What differs is said at the function.
#include <cuda_runtime_api.h>
#include <openreg.h>
#include <openreg_graph.h>
#include <openreg_ipc.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>

namespace {

cudaError_t code(orError_t error) {
  return static_cast<cudaError_t>(error);
}

orStream_t handle(cudaStream_t stream) {
  return reinterpret_cast<orStream_t>(stream);
}

orEvent_t handle(cudaEvent_t event) {
  return reinterpret_cast<orEvent_t>(event);
}

orStream_t* handles(cudaStream_t* stream) {
  return reinterpret_cast<orStream_t*>(stream);
}

orEvent_t* handles(cudaEvent_t* event) {
  return reinterpret_cast<orEvent_t*>(event);
}

orMemcpyKind direction(cudaMemcpyKind kind) {
  return static_cast<orMemcpyKind>(kind);
}

static_assert(int(cudaErrorStreamCaptureWrongThread) == int(orErrorStreamCaptureWrongThread));
static_assert(int(cudaMemcpyDefault) == int(orMemcpyDefault) && int(cudaMemoryTypeDevice) == int(orMemoryTypeDevice));
static_assert(int(cudaStreamCaptureModeRelaxed) == int(orStreamCaptureModeRelaxed));
static_assert(int(cudaStreamCaptureStatusInvalidated) == int(orStreamCaptureStatusInvalidated));
static_assert(cudaEventRecordExternal == orEventRecordExternal && cudaEventWaitExternal == orEventWaitExternal);
static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(orIpcMemHandle_t));
static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(orIpcEventHandle_t));

} // namespace

inline namespace openreg_cudart {

const char* cudaGetErrorName(cudaError_t error) {
  static const auto& names = *[] {
    auto* const all = new std::map<int, std::string>;
    for (int each = cudaSuccess; each <= cudaErrorStreamCaptureWrongThread; ++each) {
      const std::string_view name = orGetErrorName(static_cast<orError_t>(each));
      if (name.starts_with("or")) {
        all->emplace(each, "cuda" + std::string(name.substr(2)));
      }
    }
    return all;
  }();
  const auto found = names.find(error);
  return found != names.end() ? found->second.c_str() : orGetErrorName(static_cast<orError_t>(error));
}

const char* cudaGetErrorString(cudaError_t error) {
  return orGetErrorString(static_cast<orError_t>(error));
}

cudaError_t cudaGetLastError() {
  return code(orGetLastError());
}

cudaError_t cudaPeekAtLastError() {
  return code(orPeekAtLastError());
}

cudaError_t cudaGetDeviceCount(int* count) {
  return code(orGetDeviceCount(count));
}

cudaError_t cudaSetDevice(int device) {
  return code(orSetDevice(device));
}

cudaError_t cudaGetDevice(int* device) {
  return code(orGetDevice(device));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  orDeviceProp found{};
  if (const orError_t error = orGetDeviceProperties(prop != nullptr ? &found : nullptr, device)) {
    return code(error);
  }
  *prop = {
      .name = {},
      .uuid = {},
      .totalGlobalMem = found.totalGlobalMem,
      .major = found.major,
      .minor = found.minor,
      .multiProcessorCount = found.multiProcessorCount,
      .warpSize = found.warpSize,
      .maxThreadsPerBlock = found.maxThreadsPerBlock,
      .maxThreadsPerMultiProcessor = found.maxThreadsPerMultiProcessor,
      .regsPerMultiprocessor = found.regsPerMultiprocessor,
      .sharedMemPerBlock = found.sharedMemPerBlock,
      .sharedMemPerBlockOptin = found.sharedMemPerBlockOptin,
      .sharedMemPerMultiprocessor = found.sharedMemPerMultiprocessor,
      .l2CacheSize = found.l2CacheSize,
      .clockRate = found.clockRate,
      .memoryClockRate = found.memoryClockRate,
      .memoryBusWidth = found.memoryBusWidth,
      .pciDomainID = found.pciDomainID,
      .pciBusID = found.pciBusID,
      .pciDeviceID = found.pciDeviceID,
      .integrated = found.integrated,
      .isMultiGpuBoard = found.isMultiGpuBoard,
      .asyncEngineCount = found.asyncEngineCount,
      .unifiedAddressing = found.unifiedAddressing,
      .canMapHostMemory = found.canMapHostMemory,
      .concurrentKernels = found.concurrentKernels,
      .streamPrioritiesSupported = found.streamPrioritiesSupported,
  };
  std::memcpy(prop->name, found.name, sizeof(found.name));
  std::memcpy(prop->uuid.bytes, found.uuid.bytes, sizeof(found.uuid.bytes));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return code(orDeviceSynchronize());
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return code(orDeviceGetStreamPriorityRange(leastPriority, greatestPriority));
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return code(orDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return code(orMalloc(devPtr, size));
}

cudaError_t cudaFree(void* devPtr) {
  return code(orFree(devPtr));
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return code(orMallocHost(ptr, size));
}

cudaError_t cudaFreeHost(void* ptr) {
  return code(orFreeHost(ptr));
}

// Registered memory has every property that a flag of CUDA asks for.
cudaError_t cudaHostRegister(void* ptr, size_t size, unsigned int /*flags*/) {
  return code(orHostRegister(ptr, size));
}

cudaError_t cudaHostUnregister(void* ptr) {
  return code(orHostUnregister(ptr));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return code(orMemGetInfo(free, total));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  orPointerAttributes found{};
  const orError_t error = orPointerGetAttributes(attributes != nullptr ? &found : nullptr, ptr);
  if (error == orSuccess) {
    const auto type = static_cast<cudaMemoryType>(found.type);
    *attributes = {type, found.device, found.devicePointer, found.hostPointer};
  }
  return code(error);
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return code(orMemcpy(dst, src, count, direction(kind)));
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return code(orMemcpyAsync(dst, src, count, direction(kind), handle(stream)));
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
  return code(orMemset(devPtr, value, count));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return code(orMemsetAsync(devPtr, value, count, handle(stream)));
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* devPtr) {
  return code(orIpcGetMemHandle(reinterpret_cast<orIpcMemHandle_t*>(handle), devPtr));
}

// Nothing needs to be enabled, so the one flag that CUDA has is passed on as 0.
cudaError_t cudaIpcOpenMemHandle(void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags) {
  orIpcMemHandle_t opened;
  std::memcpy(opened.reserved, handle.reserved, sizeof(handle.reserved));
  return code(orIpcOpenMemHandle(devPtr, opened, flags & ~unsigned(cudaIpcMemLazyEnablePeerAccess)));
}

cudaError_t cudaIpcCloseMemHandle(void* devPtr) {
  return code(orIpcCloseMemHandle(devPtr));
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return code(orStreamCreate(handles(stream)));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

// The device library's own flag has the value of CUDA's, and another meaning.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
  const unsigned int others = flags & ~unsigned(cudaStreamNonBlocking);
  return others != 0 ? cudaErrorInvalidValue : code(orStreamCreateWithPriority(handles(stream), 0, priority));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return code(orStreamGetPriority(handle(stream), priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return code(orStreamDestroy(handle(stream)));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return code(orStreamQuery(handle(stream)));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return code(orStreamSynchronize(handle(stream)));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return code(orStreamWaitEvent(handle(stream), handle(event), flags));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  return code(orLaunchHostFunc(handle(stream), fn, userData));
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

// In CUDA a flag switches times off, and in the device library a flag switches them on.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  constexpr unsigned int kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  if ((flags & ~kKnown) != 0) {
    return cudaErrorInvalidValue;
  }
  const unsigned int timing = (flags & cudaEventDisableTiming) != 0 ? orEventDisableTiming : orEventEnableTiming;
  const bool shared = (flags & cudaEventInterprocess) != 0;
  return code(shared ? orIpcEventCreate(handles(event), timing) : orEventCreateWithFlags(handles(event), timing));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return code(orEventDestroy(handle(event)));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return code(orEventRecord(handle(event), handle(stream)));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  return code(orEventRecordWithFlags(handle(event), handle(stream), flags));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return code(orEventQuery(handle(event)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return code(orEventSynchronize(handle(event)));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return code(orEventElapsedTime(ms, handle(start), handle(end)));
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* given, cudaEvent_t event) {
  return code(orIpcGetEventHandle(reinterpret_cast<orIpcEventHandle_t*>(given), handle(event)));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t given) {
  orIpcEventHandle_t opened;
  std::memcpy(opened.reserved, given.reserved, sizeof(given.reserved));
  return code(orIpcOpenEventHandle(handles(event), opened));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return code(orStreamBeginCapture(handle(stream), static_cast<orStreamCaptureMode>(mode)));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return code(orStreamEndCapture(handle(stream), reinterpret_cast<orGraph_t*>(graph)));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status);
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id, cudaGraph_t* graph) {
  orStreamCaptureStatus found{};
  uint64_t number = 0;
  const orError_t error = orStreamGetCaptureInfo(handle(stream), &found, &number, reinterpret_cast<orGraph_t*>(graph));
  if (error == orSuccess && status != nullptr) {
    *status = static_cast<cudaStreamCaptureStatus>(found);
  }
  if (error == orSuccess && id != nullptr) {
    *id = number;
  }
  return code(error);
}

cudaError_t cudaStreamGetCaptureInfo_v2(
    cudaStream_t stream,
    cudaStreamCaptureStatus* status,
    unsigned long long* id,
    cudaGraph_t* graph,
    const cudaGraphNode_t** dependencies,
    size_t* count) {
  if (dependencies != nullptr || count != nullptr) {
    return cudaErrorNotSupported;
  }
  return cudaStreamGetCaptureInfo(stream, status, id, graph);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  orStreamCaptureMode exchanged = static_cast<orStreamCaptureMode>(*mode);
  const orError_t error = orThreadExchangeStreamCaptureMode(&exchanged);
  *mode = static_cast<cudaStreamCaptureMode>(exchanged);
  return code(error);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return code(orGraphInstantiate(
      reinterpret_cast<orGraphExec_t*>(exec), reinterpret_cast<orGraph_t>(graph), static_cast<unsigned int>(flags)));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return code(orGraphLaunch(reinterpret_cast<orGraphExec_t>(exec), handle(stream)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return code(orGraphExecDestroy(reinterpret_cast<orGraphExec_t>(exec)));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return code(orGraphDestroy(reinterpret_cast<orGraph_t>(graph)));
}

cudaError_t cudaUserObjectCreate(
    cudaUserObject_t* /*object*/,
    void* /*data*/,
    cudaHostFn_t /*destroy*/,
    unsigned int /*references*/,
    unsigned int /*flags*/) {
  return cudaErrorNotSupported;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t /*object*/, unsigned int /*count*/) {
  return cudaErrorNotSupported;
}

cudaError_t cudaGraphRetainUserObject(
    cudaGraph_t /*graph*/, cudaUserObject_t /*object*/, unsigned int /*count*/, unsigned int /*flags*/) {
  return cudaErrorNotSupported;
}

} // namespace openreg_cudart
