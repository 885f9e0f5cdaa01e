/*
 * openreg: a CUDA-like accelerator simulated on the host's CPU.
 *
 * This header stands in the place of a vendor's SDK. It is plain C and knows nothing of PyTorch. Its sections, from top
 * to bottom: version and errors, devices, memory, execution, streams, events, kernels, launches. Names and meanings
 * follow CUDA's runtime API, with `or` in place of `cuda`. Every difference from CUDA is stated at the function that
 * differs.
 *
 * Rules for every function:
 *   - It returns an orError, unless its entry says otherwise. Only these end the process: a host access to device
 *     memory (see orMalloc), and a kernel's access to device memory that is not allocated.
 *   - After a failure the device is usable, and orGetLastErrorMessage() returns a sentence about the failure. A pointer
 *     to a result that is NULL gives orErrorInvalidValue, unless the entry allows NULL.
 *   - It may be called from any host thread. Each host thread has its own current device, which starts as 0.
 *   - It waits for nothing, unless its entry says so. Inside a function that a stream runs (see Launches), a call that
 *     would have to wait for queued work returns orErrorNotPermitted and does nothing: the queued work may itself be
 *     waiting for that function.
 *   - The first call that needs a device starts the simulator: it reads the environment and maps the memory. Calls that
 *     need no device do not start it, such as orGetApiVersion and the error functions. Neither do orGetDeviceCount,
 *     orSetDevice and orGetDevice, which read the environment but map no memory.
 *   - In a child that was forked after the start, every function that needs a device returns
 *     orErrorInitializationError. orFree, orFreeHost, orHostUnregister, orIpcCloseMemHandle, orStreamDestroy and
 *     orEventDestroy return orSuccess there and do nothing. orIsInBadFork() tells whether the process is such a child.
 *     fork() itself waits for the kernel and the copy that run in a queue, for at most a second: a child would inherit
 *     the locks that they hold. Then queued work goes on in the parent.
 *
 * The environment (an empty value counts as unset, except for OPENREG_VISIBLE_DEVICES):
 *   OPENREG_DEVICE_COUNT     1 to 64; default 2
 *   OPENREG_DEVICE_MEMORY    bytes per device, 1M to 16384G, with an optional suffix K, M or G; default 16G
 *   OPENREG_VISIBLE_DEVICES  device indices, separated by commas. As for CUDA_VISIBLE_DEVICES, an empty value hides all
 *                            devices, and an index that does not exist hides itself and all indices after it. Text and
 *                            repeated indices are errors, which they are not in CUDA_VISIBLE_DEVICES.
 *   OPENREG_EXECUTION        a mode or a schedule, see orFindExecution (openreg_progress.h); default inline
 *   OPENREG_CHAOS_SEED       0 to 2^64-1; default 0. The seed of OPENREG_EXECUTION=chaos
 * If a value is not valid, every call that needs or counts devices returns orErrorInvalidConfiguration, with a message
 * that names the variable, its value and the values that are allowed.
 */
#ifndef OPENREG_H
#define OPENREG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define OPENREG_EXPORT __attribute__((visibility("default")))

/* ---- Version and errors ------------------------------------------------------------------------------------------ */

/* The version of this header. The number grows when a function changes its meaning or disappears. A program compares
 * the number of the header with which it was compiled to orGetApiVersion(), the number of the loaded library. */
#define OPENREG_API_VERSION 1

/* Codes have the values of their CUDA namesakes. */
typedef enum orError {
  orSuccess = 0,
  orErrorInvalidValue = 1,
  orErrorMemoryAllocation = 2,
  orErrorInitializationError = 3,  /* used in a child forked after the simulator started */
  orErrorInvalidConfiguration = 9, /* an environment variable has a bad value */
  orErrorInvalidMemcpyDirection = 21,
  orErrorInsufficientDriver = 35, /* "injected": this library never causes it by itself */
  orErrorDevicesUnavailable = 46, /* injected */
  orErrorNoDevice = 100,
  orErrorInvalidDevice = 101,
  orErrorDeviceUninitialized = 201,   /* a process opened a handle of its own memory or event */
  orErrorECCUncorrectable = 214,      /* injected */
  orErrorOperatingSystem = 304,       /* the system refused to start a thread, or to share an event */
  orErrorInvalidResourceHandle = 400, /* the handle does not exist any more, or cannot be used here */
  orErrorIllegalState = 401,          /* a capture was begun twice, or its graph is used before it ended */
  orErrorNotReady = 600,              /* not a failure: the work is still pending */
  orErrorIllegalAddress = 700,        /* here only injected; an integration raises it for memory that is gone */
  orErrorAssert = 710,                /* injected */
  orErrorHostMemoryAlreadyRegistered = 712,
  orErrorHostMemoryNotRegistered = 713,
  orErrorLaunchFailure = 719, /* queued work threw, or orCompletionSignal got an exception */
  orErrorNotPermitted = 800,  /* not allowed here or now, such as a wait inside a function that a stream runs */
  orErrorNotSupported = 801,  /* this build does not have what the call asks for */
  /* A rule of captures was broken: see openreg_graph.h. */
  orErrorStreamCaptureUnsupported = 900,
  orErrorStreamCaptureInvalidated = 901,
  orErrorStreamCaptureMerge = 902,
  orErrorStreamCaptureUnmatched = 903,
  orErrorStreamCaptureUnjoined = 904,
  orErrorStreamCaptureIsolation = 905,
  orErrorStreamCaptureImplicit = 906,
  orErrorCapturedEvent = 907,
  orErrorStreamCaptureWrongThread = 908,
} orError_t;

/* The version of the library that is loaded. */
OPENREG_EXPORT orError_t orGetApiVersion(int* version);

/* The name of a code ("orErrorMemoryAllocation"), and CUDA's text for it ("out of memory"), with OpenReg in place of
 * CUDA. A code that does not exist gives "unrecognized error code". The strings are valid until the process ends. */
OPENREG_EXPORT const char* orGetErrorName(orError_t error);
OPENREG_EXPORT const char* orGetErrorString(orError_t error);

/* The code of the calling thread's last failure; orSuccess if there was none. orGetLastError also resets it to
 * orSuccess. orErrorNotReady is not recorded. */
OPENREG_EXPORT orError_t orGetLastError(void);
OPENREG_EXPORT orError_t orPeekAtLastError(void);

/* Returns a sentence about the calling thread's last failure, or "" if there was no failure. The sentence names the
 * call, the value, the limit and the way out. It is valid until the thread's next call that fails. */
OPENREG_EXPORT const char* orGetLastErrorMessage(void);

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

typedef struct orUuid {
  unsigned char bytes[16];
} orUuid_t;

/* The capacity and the flags describe the simulated device. The other numbers are those of the GPU that it stands for:
 * an NVIDIA A100 with 40 GB. This library does not use them. */
typedef struct orDeviceProp {
  char name[64];         /* "OpenReg simulated accelerator" */
  orUuid_t uuid;         /* the same in every process */
  size_t totalGlobalMem; /* bytes: the capacity (OPENREG_DEVICE_MEMORY) */
  int major, minor;      /* compute capability */
  int multiProcessorCount;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int regsPerMultiprocessor;
  size_t sharedMemPerBlock;          /* bytes */
  size_t sharedMemPerBlockOptin;     /* bytes: the limit for a kernel that asks for more than sharedMemPerBlock */
  size_t sharedMemPerMultiprocessor; /* bytes */
  int l2CacheSize;                   /* bytes */
  int clockRate, memoryClockRate;    /* kHz */
  int memoryBusWidth;                /* bits */
  int pciDomainID, pciBusID, pciDeviceID;
  bool integrated;                /* the device is part of the host and shares its memory */
  bool isMultiGpuBoard;           /* the device is one of several on a board */
  int asyncEngineCount;           /* how many copies may run beside kernels: 1 */
  bool unifiedAddressing;         /* the device follows from a pointer: true */
  bool canMapHostMemory;          /* kernels may dereference pinned host memory: true */
  bool concurrentKernels;         /* kernels of different streams may overlap: false */
  bool streamPrioritiesSupported; /* true */
} orDeviceProp;

/* How a client presents the devices to its users. Members that are NULL keep the library's own behaviour. */
typedef struct orDeviceIdentity {
  /* (optional) The name of an environment variable that selects devices, beside OPENREG_VISIBLE_DEVICES. If both are
   * set and select different devices, every call that needs or counts devices returns orErrorInvalidConfiguration. */
  const char* visibleDevicesVariable;
  /* Required with visibleDevicesVariable. Reads the variable's value: writes the indices of the selected devices to
   * `selected`, which has room for `count`, and returns how many there are. `uuids` are those of all devices. */
  int (*selectDevices)(const char* value, const orUuid_t* uuids, int count, int* selected);
  /* (optional) The client's text for an error, which orGetErrorString() returns. NULL: the library's own text. */
  const char* (*errorString)(orError_t error);
} orDeviceIdentity;

/* Sets the identity, before any other call: the environment is read once. The struct and its strings must stay valid
 * until the process ends. */
OPENREG_EXPORT void orSetDeviceIdentity(const orDeviceIdentity* identity);

/* The number of visible devices. If there are 0 devices, this function returns orSuccess, and every function that needs
 * a device returns orErrorNoDevice. */
OPENREG_EXPORT orError_t orGetDeviceCount(int* count);

/* Sets and gets the calling thread's current device. orSetDevice returns orErrorInvalidDevice if there is no device of
 * this number. */
OPENREG_EXPORT orError_t orSetDevice(int device);
OPENREG_EXPORT orError_t orGetDevice(int* device);

/* Returns orErrorInvalidDevice if there is no device of this number. */
OPENREG_EXPORT orError_t orGetDeviceProperties(orDeviceProp* prop, int device);

/* Waits for all work of the current device. Returns the first failure of its streams that no call has returned yet. */
OPENREG_EXPORT orError_t orDeviceSynchronize(void);

/* The range of stream priorities: least = 0, greatest = -3. A lower number is more urgent. Either pointer may be
 * NULL. */
OPENREG_EXPORT orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);

/* Returns true in a child that was forked after the simulator started: see the rules at the top. Never starts the
 * simulator. */
OPENREG_EXPORT bool orIsInBadFork(void);

/* Sets `canAccess` to 1 for two different devices: each device reads and writes the memory of every other, and nothing
 * needs to be enabled. Sets it to 0 for a device and itself, and for devices without peer access. Copies between
 * devices work in both cases, as CUDA's do. Returns orErrorInvalidDevice if one of the devices does not exist. */
OPENREG_EXPORT orError_t orDeviceCanAccessPeer(int* canAccess, int device, int peer);

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3, /* also between two devices */
  orMemcpyDefault = 4,        /* the direction follows from the pointers */
} orMemcpyKind;

typedef enum orMemoryType {
  orMemoryTypeUnregistered = 0, /* pageable host memory, or no memory that this library knows */
  orMemoryTypeHost = 1,         /* pinned host memory: of orMallocHost or orHostRegister */
  orMemoryTypeDevice = 2,
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;          /* for device memory its device; for pinned memory the device current when pinned; else -1 */
  void* devicePointer; /* the pointer if kernels may use it, else NULL */
  void* hostPointer;   /* the pointer if the host may use it, else NULL */
  void* base;          /* the start of the allocation; NULL if the pointer lies in no allocation */
  size_t size;         /* bytes of the allocation */
} orPointerAttributes;

/*
 * Device memory: a separate address space, although its bytes are memory of the host.
 *
 * Each device has two windows of addresses, at a constant distance from each other. The addresses that orMalloc returns
 * lie in the *device window*, which is mapped PROT_NONE. A host that dereferences such an address gets SIGSEGV. A
 * sentence on stderr then says which allocation of which device the host touched, and what to do instead; after that
 * the handler of SIGSEGV that was installed before runs. Kernels reach the same bytes through the *kernel window*.
 * orGetKernelPointer() translates an address; no other code may assume the distance.
 *
 * orMalloc: `size` 0 gives NULL and orSuccess. The address is a multiple of 4096, and of 2 MiB if `size` is at least 2
 * MiB. The contents are undefined. Returns orErrorMemoryAllocation if the device's capacity, RLIMIT_AS, the cgroup's
 * limit or the host's memory does not suffice. The message names the limit, and OPENREG_DEVICE_MEMORY.
 *
 * orFree: waits for the work of all devices, because each device reaches the memory of every other, and then gives the
 * pages back to the system. For NULL it does nothing. Returns orErrorInvalidValue if `devPtr` is not the start of an
 * allocation of orMalloc.
 */
OPENREG_EXPORT orError_t orMalloc(void** devPtr, size_t size);
OPENREG_EXPORT orError_t orFree(void* devPtr);

/*
 * Leaves `bytes` of inaccessible addresses, a *guard*, behind the last page (4096 bytes) of every later allocation of
 * orMalloc. A kernel that reaches the guard faults, and a sentence on stderr names the allocation, and the kernel if
 * its name is known. `bytes` is rounded up to a multiple of 4096. 0, the default: no guards. A guard uses addresses,
 * not memory; an allocation for which no addresses are left gets no guard. CUDA has no such function; a program for
 * CUDA can make guards with cuMemAddressReserve and cuMemMap.
 */
OPENREG_EXPORT orError_t orSetGuardSize(size_t bytes);

/* Pinned host memory: the host and kernels use it through the same address, and forked children share it: what one
 * process writes, the other reads. The address is a multiple of 4096. The device's capacity is no limit. Otherwise sizes
 * and errors are those of orMalloc and orFree, and orFreeHost waits as orFree does.
 *
 * The first fork() after an allocation moves the bytes to memory that can be shared. That takes as long as a copy, and
 * delays threads that write to the bytes meanwhile. If it is not possible, a sentence on stderr says why, and the child
 * gets a copy. */
OPENREG_EXPORT orError_t orMallocHost(void** ptr, size_t size);
OPENREG_EXPORT orError_t orFreeHost(void* ptr);

/* orHostRegister turns host memory of the program, such as memory that processes share, into pinned memory. It returns
 * orErrorInvalidValue for NULL, a size of 0 and device memory, and orErrorHostMemoryAlreadyRegistered if a part of the
 * bytes is pinned. The memory still belongs to the program, which must keep it mapped until orHostUnregister.
 *
 * orHostUnregister gets the same address and ends the registration. It waits as orFreeHost does. It returns
 * orErrorHostMemoryNotRegistered for an address that was not registered. */
OPENREG_EXPORT orError_t orHostRegister(void* ptr, size_t size);
OPENREG_EXPORT orError_t orHostUnregister(void* ptr);

/* Free and total bytes of the current device. */
OPENREG_EXPORT orError_t orMemGetInfo(size_t* free, size_t* total);

/* Describes a pointer, which may point into the middle of an allocation. For a pointer into no device memory and no
 * pinned memory, the result is orSuccess and orMemoryTypeUnregistered. */
OPENREG_EXPORT orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);

/* Returns the address at which a kernel may read and write the bytes of `devPtr`. Pinned and ordinary host addresses,
 * and NULL, come back unchanged. Every kernel gets from a device address to its bytes in this way. Never fails, and
 * takes a few nanoseconds. */
OPENREG_EXPORT void* orGetKernelPointer(const void* devPtr);

/* The inverse of orGetKernelPointer, for allocators that divide kernel memory into blocks. An address outside the
 * kernel windows comes back unchanged. */
OPENREG_EXPORT void* orGetDevicePointer(const void* kernelPtr);

/* For debugging: orMemoryUnprotect lets the host read and write one allocation through its device address, until
 * orMemoryProtect. Meanwhile the device window shows the same bytes as the kernel window. Both functions wait as orFree
 * does. Both return orErrorInvalidValue if `devPtr` is not the start of an allocation. */
OPENREG_EXPORT orError_t orMemoryUnprotect(void* devPtr);
OPENREG_EXPORT orError_t orMemoryProtect(void* devPtr);

/*
 * Device memory that several processes share. The process that allocated the memory makes a handle, 64 bytes that it
 * sends to other processes by any means. Another process opens the handle and reaches the same bytes at an address of
 * its own, on its current device.
 *
 * The memory counts against the capacity of the process that allocated it, and not of the processes that open it. An
 * opened handle stays valid until it is closed, even if the owner frees the memory or ends (in CUDA the memory is gone
 * then). But a handle cannot be opened after its owner has freed the memory or ended. orIpcGetMemHandle does not wait
 * for queued work: the sender of a handle makes sure that the bytes have been written.
 *
 * orIpcGetMemHandle: returns orErrorInvalidValue if `devPtr` is not the start of an allocation of this process. The
 * first handle of an allocation moves the bytes to memory that can be shared. That takes as long as a copy, and delays
 * threads that write to the bytes meanwhile.
 *
 * orIpcOpenMemHandle: a handle that is open already on the current device gives the same address again, and must be
 * closed once more. `flags` is 0. Returns orErrorDeviceUninitialized in the process that made the handle, and
 * orErrorInvalidResourceHandle if the memory is gone or the handle is damaged. Handles are checked: a damaged one never
 * opens other files, and never maps more bytes than the memory has.
 *
 * orIpcCloseMemHandle: waits as orFree does. Returns orErrorInvalidValue if orIpcOpenMemHandle did not return `devPtr`.
 */
typedef struct orIpcMemHandle {
  char reserved[64];
} orIpcMemHandle_t;
OPENREG_EXPORT orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* devPtr);
OPENREG_EXPORT orError_t orIpcOpenMemHandle(void** devPtr, orIpcMemHandle_t handle, unsigned int flags);
OPENREG_EXPORT orError_t orIpcCloseMemHandle(void* devPtr);

/* orMemcpy copies `size` bytes. orMemset sets them to the low byte of `value`. Both do so after the work that is
 * already queued on the current device's default stream, and return when that work and their own is done.
 *
 * They return orErrorInvalidMemcpyDirection if `kind` contradicts the pointers or does not exist, and
 * orErrorInvalidValue if a pointer is NULL, if a range lies in freed memory or reaches past the end of its allocation,
 * or if orMemset gets ordinary host memory. As orStreamSynchronize, they return a failure of the stream's work that no
 * call has returned yet; the bytes are written all the same. */
OPENREG_EXPORT orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind);
OPENREG_EXPORT orError_t orMemset(void* devPtr, int value, size_t size);

/* ---- Execution --------------------------------------------------------------------------------------------------- */

/*
 * When queued work runs. The rules of streams and events hold in every mode.
 *
 * Three threads run queued work. The first runs the kernels of all streams and all devices, so the process has one
 * OpenMP team for them, besides that of the host's own computations. It also runs fills, and copies within one device.
 * The second runs all other copies. The third runs host functions. The first work that is queued for a thread starts
 * the thread, and the thread sleeps when it has no work. If several streams have work for a thread, the stream with the
 * most urgent priority comes first.
 *
 * When the process exits, it waits for running kernels and copies, for at most 10 seconds, and abandons queued work
 * (orExecutionChaos runs it in that time). Calls from later exit handlers execute inline.
 */
typedef enum orExecutionMode {
  orExecutionInline = 0, /* work runs in the launching call; it is queued if its stream has pending work */
  /* Work is queued. These may run in the launching call: kernels with orLaunchMayRunInline, copies from or to pageable
   * memory, and copies and fills for which the call waits anyway. */
  orExecutionAsync = 1,
  /* All work is queued, and runs only when somebody waits for it, in an order that the seed chooses (0: as late as
   * possible). So a program that misses a synchronisation gets wrong results. Only in builds with csrc/simulator. */
  orExecutionChaos = 2,
} orExecutionMode;

/* Waits for the work of all devices, then switches. Failures of that work stay for the next call that waits. `seed`
 * chooses the order of work in orExecutionChaos; the other modes ignore it. Returns orErrorInvalidValue if the mode
 * does not exist, and orErrorNotSupported if this build does not have it. */
OPENREG_EXPORT orError_t orSetExecutionMode(orExecutionMode mode, uint64_t seed);

/* Returns whether the mode is orExecutionInline and no stream captures. Callers ask before every kernel, so this
 * function cannot fail. It returns false before the simulator has started. In a forked child it also returns false, and
 * the launch that follows returns the error. */
OPENREG_EXPORT bool orExecutesInline(void);

/* The result of orExecutesInline, without a call. Read it with __atomic_load_n; never write it. */
OPENREG_EXPORT extern bool orInlineFlag;

/* The mode and the seed. Either pointer may be NULL. */
OPENREG_EXPORT orError_t orGetExecutionMode(orExecutionMode* mode, uint64_t* seed);
/* The name of the mode in OPENREG_EXECUTION, a string that is never freed; NULL if the mode does not exist. */
OPENREG_EXPORT const char* orGetExecutionModeName(orExecutionMode mode);

/* (optional) Sets the functions that a thread calls before and after it sleeps in a function of this header. Other
 * threads may need a lock that the sleeping thread holds, such as Python's interpreter lock: `before` releases the
 * lock, and `after` takes it again. `before` returns the argument of `after`; if it returns NULL, `after` is not
 * called. No lock of this library is held during the calls.
 *
 * If both are NULL, which is the default, nothing is called. Returns orErrorInvalidValue if only one is NULL. */
typedef void* (*orBeforeWaitFn_t)(void);
typedef void (*orAfterWaitFn_t)(void* token);
OPENREG_EXPORT orError_t orSetWaitCallbacks(orBeforeWaitFn_t before, orAfterWaitFn_t after);

/* (optional) Sets the function that the thread of the kernels calls each time when it has had no work for
 * `delayMicroseconds`. `fn(userData)` may release what kernels keep for that thread, such as its OpenMP team. Work that
 * is queued meanwhile waits for `fn`. NULL, the default: nothing is called. */
typedef void (*orHostFn_t)(void* userData);
OPENREG_EXPORT orError_t orSetIdleCallback(orHostFn_t fn, void* userData, unsigned int delayMicroseconds);

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

/* A stream runs its work in the order of the calls. It belongs to the device that was current when it was made. NULL is
 * the default stream of the current device.
 *
 * Every function that takes a stream or an event returns orErrorInvalidResourceHandle if the stream or event does not
 * exist: it was destroyed, or the value never was a handle. */
typedef struct orStream* orStream_t;
typedef struct orEvent* orEvent_t;

/* The default stream of a device, as a handle. The handle means this device, whichever device is current (NULL means
 * the current device). A default stream is never destroyed. Returns orErrorInvalidDevice if the device does not
 * exist. */
OPENREG_EXPORT orError_t orDeviceGetDefaultStream(orStream_t* stream, int device);

/* Makes a stream of the current device, with priority 0 or with `priority`. A priority outside of
 * orDeviceGetStreamPriorityRange() is moved into the range, as CUDA does. `flags` is 0 or orStreamPersistent; for other
 * flags the function returns orErrorInvalidValue. */
OPENREG_EXPORT orError_t orStreamCreate(orStream_t* stream);
OPENREG_EXPORT orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned int flags, int priority);
/* This flag is for the streams of a framework's pool. The stream lives as long as the process: orStreamDestroy refuses
 * it, and its handle is looked up without a lock. A process can make 16384 such streams, less one for each device. */
#define orStreamPersistent 0x1u

OPENREG_EXPORT orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_EXPORT orError_t orStreamGetDevice(orStream_t stream, int* device);

/* Makes the handle invalid and returns at once. Queued work still runs; then the stream is deleted. Returns
 * orErrorInvalidResourceHandle for a default stream and for a persistent one. */
OPENREG_EXPORT orError_t orStreamDestroy(orStream_t stream);

/* Returns orSuccess if all queued work has run, otherwise orErrorNotReady. A failure of the work stays for the next
 * call that waits. */
OPENREG_EXPORT orError_t orStreamQuery(orStream_t stream);

/* Waits for all queued work. A failure of the work is returned once, and cleared. */
OPENREG_EXPORT orError_t orStreamSynchronize(orStream_t stream);

/* Later work of `stream` waits for the last record of the event before this call. Nothing waits if the event was never
 * recorded. It makes no difference if the event is recorded again or destroyed meanwhile. The event may belong to
 * another device. `flags` is 0, or orEventWaitExternal of openreg_graph.h. The host does not wait, unless the calling
 * thread has the turn of `stream` (see Kernels). */
OPENREG_EXPORT orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned int flags);

/* As orMemcpy and orMemset, but queued on `stream`. The call waits as a launch does (see Launches), and returns no
 * failure of the stream's work. Whether it waits for other reasons depends on the memory:
 *   - If all memory is device memory or pinned memory, it does not.
 *   - A copy to pageable memory has written its destination when the call returns. The call waits for the stream.
 *   - A copy from pageable memory has read its source when the call returns. If the copy must be queued, its source
 *     is read in advance. The call waits only if the sources read in advance, with this one, would exceed 64 MiB; then
 *     it waits until the copy is done. */
OPENREG_EXPORT orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream);
/* The same as orMemcpyAsync followed by orStreamSynchronize. But if the mode allows it, the calling thread makes the
 * copy, instead of waking another thread. HIP has this function; CUDA does not. */
OPENREG_EXPORT orError_t
orMemcpyWithStream(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream);
OPENREG_EXPORT orError_t orMemsetAsync(void* devPtr, int value, size_t size, orStream_t stream);

/* ---- Events ------------------------------------------------------------------------------------------------------ */

/* Makes an event of the current device; orEventCreate makes it without timing. For flags other than the two below, the
 * function returns orErrorInvalidValue. */
OPENREG_EXPORT orError_t orEventCreate(orEvent_t* event);
OPENREG_EXPORT orError_t orEventCreateWithFlags(orEvent_t* event, unsigned int flags);
#define orEventDisableTiming 0x0u /* the default here and in PyTorch; in CUDA the default records times */
#define orEventEnableTiming 0x1u

/* Makes the handle invalid. Streams that wait for the event still wait for its record. */
OPENREG_EXPORT orError_t orEventDestroy(orEvent_t event);

/* Records the event: from now on it stands for this point of `stream`, and no longer for an earlier one. Returns
 * orErrorInvalidResourceHandle if the stream belongs to another device than the event. */
OPENREG_EXPORT orError_t orEventRecord(orEvent_t event, orStream_t stream);

/* Returns orSuccess if the device has reached the last record, or if the event was never recorded; otherwise
 * orErrorNotReady. A failure of the stream's work stays for the next call that waits. */
OPENREG_EXPORT orError_t orEventQuery(orEvent_t event);

/* Waits for the last record. Returns a failure of its stream's work as orStreamSynchronize does. */
OPENREG_EXPORT orError_t orEventSynchronize(orEvent_t event);

/* The milliseconds between the moments when the device reached the last records of two events. Returns
 * orErrorInvalidResourceHandle if one of the events was made without timing or never recorded, or if they belong to two
 * devices, and orErrorNotReady if one is pending. */
OPENREG_EXPORT orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end);

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/*
 * Every kernel runs in a *kernel scope*: the code that lets a kernel begin, and notifies subscribers of its begin and
 * its end. For a kernel that the host computes on the calling thread, the caller enters the scope with orKernelBegin
 * and leaves it with orKernelEnd. A kernel that is launched (see Launches) enters the scope when a stream runs it.
 *
 * A stream runs one piece of work at a time, so a kernel needs the *turn* of its stream. orKernelBegin waits until all
 * queued work of the stream has run and no kernel of another thread has the turn; then it takes the turn. Until
 * orKernelEnd, launches, copies and kernels of other threads on this stream wait, and events that other threads record
 * there are queued. Work that the thread with the turn starts on the same stream runs at once, and waits for nothing.
 *
 * There are two cases in which a kernel begins without a turn. If threads wait for each other in a circle, for example
 * two that each want the turn that the other one has, one of them goes on without the turn. And a kernel that begins
 * inside a function that a stream runs, or while the process exits, may not wait, so it begins even if the turn is not
 * free.
 *
 * Subscribers (openreg_activity.h) are notified of the begin and the end of each kernel. Without a subscriber this
 * costs one branch.
 */

/* An array that a kernel reads or writes. It has `dims` dimensions, and elements of `itemSize` bytes. dims 0: one
 * element. */
typedef struct orOperand {
  const void* data; /* the first element: a device address, or memory of the host */
  size_t itemSize;
  int dims;
  const int64_t* sizes;   /* elements of each dimension */
  const int64_t* strides; /* bytes from one element to the next */
  unsigned int access;    /* orAccessRead, orAccessWrite, or both; 0: the memory is only named, as in allocations */
} orOperand;
#define orAccessRead 0x1u
#define orAccessWrite 0x2u

/* Receives one operand, valid during the call. */
typedef void (*orOperandFn_t)(const orOperand* operand, void* context);

/* The description of a kernel. */
typedef struct orKernel {
  const char* name; /* the name of the operator or of the kernel, or NULL; valid until the process ends */
  /* (optional) Calls `visit(operand, context)` for each operand. It is called only if there is a subscriber, or for a
   * launch in orExecutionChaos. NULL: the operands are not known, and the kernel may read and write any memory. */
  void (*operands)(void* data, orOperandFn_t visit, void* context);
  void* data; /* the first argument of `operands` */
} orKernel;

/* A kernel on the calling thread. The caller provides the memory; only the library reads and writes the members. */
typedef struct orKernelScope {
  struct orKernelScope* outer;
  void* turn;
  uint64_t id;
  const orKernel* kernel;
  orStream_t stream;
  int device;
} orKernelScope;

/* Begins a kernel on the calling thread. `kernel` must stay valid until orKernelEnd.
 *
 * Waits for the turn, see above. It may return a failure of earlier work, but never in orExecutionInline. After an
 * error no kernel has begun, and orKernelEnd must not be called. */
OPENREG_EXPORT orError_t orKernelBegin(orKernelScope* scope, orStream_t stream, const orKernel* kernel);

/* Ends the kernel. To be called on the thread of orKernelBegin, even if the kernel failed; kernels of a thread end in
 * the reverse order of their begin. `failed`: an exception left the kernel. If the kernel has not failed, subscribers
 * can call `operands` once more, and it may now name memory that was not known when the kernel began: the results. */
OPENREG_EXPORT void orKernelEnd(orKernelScope* scope, bool failed);

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/*
 * Each function below queues a call of `fn(userData)` on `stream`. orLaunch queues a kernel, which translates device
 * addresses with orGetKernelPointer() (openreg_launch.h has the C++ form). orLaunchHostFunc queues a function of the
 * host, which does not delay the kernels of other streams.
 *
 * `fn` may run on any thread. The stream's device is current in it. `fn` may queue further work; on its own stream that
 * work runs after `fn`.
 *
 * As in CUDA, a launch waits if 1024 items of its stream are pending, until half of them are done. A launch by queued
 * work never waits for this reason.
 *
 * If a C++ exception leaves `fn`, the stream has failed: the next call that waits for the stream returns
 * orErrorLaunchFailure, once. If there are several failures, the first is returned. Later work still runs. Only these
 * calls return failures of a stream's work: orStreamSynchronize, orDeviceSynchronize, orEventSynchronize, orMemcpy,
 * orMemset, orMemcpyWithStream and orKernelBegin.
 *
 * After orSuccess `fn` runs exactly once, or never if the process exits before. After an error `fn` does not run. If the
 * stream captures (openreg_graph.h), `fn` runs once in each replay of the graph instead.
 */
OPENREG_EXPORT orError_t orLaunch(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags);
#define orLaunchDefault 0x0u
/* The kernel is small: in orExecutionAsync it runs in the launching call if nothing is pending on the stream, which
 * costs less than waking another thread. Do not set the flag for a kernel that uses OpenMP. */
#define orLaunchMayRunInline 0x1u
/* A launch that would have to wait, for another thread's kernel or for room in the queue, returns orErrorNotReady and
 * does nothing. */
#define orLaunchNoWait 0x2u
/* `fn` can be called only once, because it frees its data. A capture (openreg_graph.h) refuses the launch. */
#define orLaunchOnce 0x4u

/* As orLaunch, with a description of the kernel, which is copied. `kernel->operands` is called before `fn` and never
 * after it, so `kernel->data` may be `userData`. */
OPENREG_EXPORT orError_t
orLaunchDescribed(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags, const orKernel* kernel);

/* Waits until a launch on the stream would not have to wait. */
OPENREG_EXPORT orError_t orStreamAwaitLaunch(orStream_t stream);

OPENREG_EXPORT orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t fn, void* userData);

/*
 * Queues work that a library does on its own threads, such as a network transfer.
 *
 * When the stream comes to the work, `fn(userData, completion)` is called as a host function is called. `fn` starts
 * the work and returns. The stream goes on when any thread calls orCompletionSignal(completion), which may be before
 * `fn` has returned. Other host functions and the work of other streams run meanwhile. In orExecutionInline the launch
 * returns as soon as `fn` has returned, and later launches on the stream are queued until the completion.
 *
 * `kernel` describes the work for subscribers (openreg_activity.h): it begins before `fn` is called, and ends at the
 * completion. The description is copied, and may be NULL. Returns orErrorNotPermitted from a thread whose kernel has
 * the turn of the stream.
 *
 * orCompletionSignal: `exception` is NULL, or points to a C++ std::exception_ptr, which becomes the stream's failure.
 * An exception that leaves `fn` completes the work with that exception. Returns orErrorInvalidResourceHandle if the
 * work was completed before.
 */
typedef struct orCompletion* orCompletion_t;
typedef void (*orDeferredFn_t)(void* userData, orCompletion_t completion);
OPENREG_EXPORT orError_t orLaunchDeferred(orStream_t stream, orDeferredFn_t fn, void* userData, const orKernel* kernel);
OPENREG_EXPORT orError_t orCompletionSignal(orCompletion_t completion, const void* exception);

/* (optional, for C++) Throws the exception that was the stream's failure, if the last failure of the calling thread was
 * orErrorLaunchFailure. Throws it once; without such an exception the function returns. */
OPENREG_EXPORT void orRethrowLaunchFailure(void);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_H */
