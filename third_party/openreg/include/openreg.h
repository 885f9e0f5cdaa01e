/*
 * openreg: a CUDA-like accelerator simulated on the host's CPU.
 *
 * This header stands where a vendor's SDK would stand. It knows nothing of PyTorch, is plain C, and reads top to
 * bottom: version and errors, devices, memory, execution, streams, events, kernels, launches. Names and meaning follow CUDA's runtime API
 * with `or` in place of `cuda`; a difference is stated where it occurs.
 *
 * Rules that hold for every function:
 *   - It returns an orError. Nothing aborts the process, except a host access to device memory (see orMalloc).
 *   - A failure leaves the device usable. The calling thread can ask for a sentence with orGetLastErrorMessage().
 *   - It may be called from any host thread. The current device belongs to the calling thread and starts as 0.
 *   - Inside a function that a stream runs (see Launches) a call that would have to wait for queued work returns
 *     orErrorNotPermitted and does nothing: that work may be waiting for the function itself.
 *   - The simulator starts at the first call that needs a device (not orGetApiVersion, not the error functions, not
 *     orGetDeviceCount, orSetDevice or orGetDevice, which read the environment but map no memory). It then reads
 *     OPENREG_DEVICE_COUNT (1..64, default 2), OPENREG_DEVICE_MEMORY (bytes a device, 1M..16384G, suffixes K, M, G;
 *     default 16G) and OPENREG_VISIBLE_DEVICES (indices, comma separated, as CUDA_VISIBLE_DEVICES: an empty value hides
 *     all, an index that does not exist hides itself and those after it; unlike there, text and repeated indices are
 *     errors), OPENREG_EXECUTION (inline, async or chaos; default inline: see orExecutionMode) and OPENREG_CHAOS_SEED (0
 *     to 2^64-1, default 0). A value that makes no sense is orErrorInvalidConfiguration from this and every later call, with a
 *     message that names the variable, its value and what is allowed.
 *   - In a child forked after the simulator started, every function that needs a device returns
 *     orErrorInitializationError, and orFree/orStreamDestroy/orEventDestroy/orFreeHost/orIpcCloseMemHandle succeed without
 *     doing anything.
 *     orIsInBadFork() tells.
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

/* Increased when a function changes meaning or disappears. A user compares it with orGetApiVersion() at start. */
#define OPENREG_API_VERSION 1

/* Codes have the values of their CUDA namesakes. */
typedef enum orError {
  orSuccess = 0,
  orErrorInvalidValue = 1,
  orErrorMemoryAllocation = 2,
  orErrorInitializationError = 3,  /* used in a child forked after the simulator started */
  orErrorInvalidConfiguration = 9, /* an environment variable has a bad value */
  orErrorInvalidMemcpyDirection = 21,
  orErrorInsufficientDriver = 35, /* of injected faults only, as the others that say so */
  orErrorDevicesUnavailable = 46, /* injected */
  orErrorNoDevice = 100,
  orErrorInvalidDevice = 101,
  orErrorDeviceUninitialized = 201,   /* a handle of this process's own memory was opened in it */
  orErrorECCUncorrectable = 214,      /* injected */
  orErrorOperatingSystem = 304,       /* the system refused a thread */
  orErrorInvalidResourceHandle = 400, /* a stream or event that was destroyed, or is of another device */
  orErrorNotReady = 600,              /* not a failure: the work asked about is still pending */
  orErrorIllegalAddress = 700,
  orErrorAssert = 710,        /* injected */
  orErrorLaunchFailure = 719, /* a kernel or host function threw */
  orErrorNotPermitted = 800,  /* called inside a function that a stream runs, where it would have to wait */
  orErrorNotSupported = 801,
} orError_t;

OPENREG_EXPORT orError_t orGetApiVersion(int* version);

/* "orErrorMemoryAllocation" and "out of memory"; a code that does not exist gives "unrecognized error code". */
OPENREG_EXPORT const char* orGetErrorName(orError_t error);
OPENREG_EXPORT const char* orGetErrorString(orError_t error);

/* The calling thread's last failure; orGetLastError also resets it to orSuccess. orErrorNotReady is not recorded. */
OPENREG_EXPORT orError_t orGetLastError(void);
OPENREG_EXPORT orError_t orPeekAtLastError(void);

/* A sentence about the calling thread's last failure: the call, the value, the limit, the way out. "" if there was
 * none. Valid until the thread's next failing call. */
OPENREG_EXPORT const char* orGetLastErrorMessage(void);

/* ---- Devices ----------------------------------------------------------------------------------------------------- */

typedef struct orUuid {
  unsigned char bytes[16];
} orUuid_t;

/* Capacity and behaviour are this device's. The other numbers are those of the GPU that it stands for (an NVIDIA A100
 * with 40 GB, unless openreg_model.h chose another); nothing here behaves by them. */
typedef struct orDeviceProp {
  char name[64];         /* "OpenReg simulated accelerator" */
  orUuid_t uuid;         /* the same in every process */
  size_t totalGlobalMem; /* bytes: the capacity, OPENREG_DEVICE_MEMORY */
  int major, minor;      /* compute capability */
  int multiProcessorCount;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsPerMultiProcessor;
  int regsPerMultiprocessor;
  size_t sharedMemPerBlock;          /* bytes */
  size_t sharedMemPerBlockOptin;     /* bytes, for a kernel that asks for more than sharedMemPerBlock */
  size_t sharedMemPerMultiprocessor; /* bytes */
  int l2CacheSize;                   /* bytes */
  int clockRate, memoryClockRate;    /* kHz */
  int memoryBusWidth;                /* bits */
  int pciDomainID, pciBusID, pciDeviceID;
  bool integrated;                /* part of the host, with which it shares memory */
  bool isMultiGpuBoard;           /* one of several devices on a board */
  int asyncEngineCount;           /* copies that may overlap kernels and other streams' copies: 1 */
  bool unifiedAddressing;         /* a pointer tells its device: true */
  bool canMapHostMemory;          /* kernels may dereference pinned host memory: true */
  bool concurrentKernels;         /* kernels of different streams may overlap: false */
  bool streamPrioritiesSupported; /* true */
} orDeviceProp;

/* For a user who calls the devices CUDA's: CUDA_VISIBLE_DEVICES selects devices, too, by CUDA's own rules: indices, or
 * beginnings of UUIDs ("GPU-..."); what is repeated hides every device, and what is no device ends the list. Where
 * OPENREG_VISIBLE_DEVICES is set as well and selects others, every call is orErrorInvalidConfiguration. Error texts say
 * CUDA in place of OpenReg. Comes before any call that reads the environment. */
OPENREG_EXPORT void orReadCudaVariables(void);

/* The number of visible devices; 0 is orSuccess here. */
OPENREG_EXPORT orError_t orGetDeviceCount(int* count);
OPENREG_EXPORT orError_t orSetDevice(int device);
OPENREG_EXPORT orError_t orGetDevice(int* device);
OPENREG_EXPORT orError_t orGetDeviceProperties(orDeviceProp* prop, int device);

/* Waits for all work of the current device; returns the first failure of a stream that was not reported yet. */
OPENREG_EXPORT orError_t orDeviceSynchronize(void);

/* Lower numbers are more urgent: least = 0, greatest = -3. */
OPENREG_EXPORT orError_t orDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority);

/* True in a child that was forked after the simulator started: see the rules at the top. Starts nothing. */
OPENREG_EXPORT bool orIsInBadFork(void);

/* 1 for two different valid devices: any device reads and writes any other's memory. Nothing needs to be enabled.
 * 0 for a model without peer access (openreg_model.h): copies between devices work all the same, as CUDA's do. */
OPENREG_EXPORT orError_t orDeviceCanAccessPeer(int* canAccess, int device, int peer);

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

typedef enum orMemcpyKind {
  orMemcpyHostToHost = 0,
  orMemcpyHostToDevice = 1,
  orMemcpyDeviceToHost = 2,
  orMemcpyDeviceToDevice = 3, /* also between two devices */
  orMemcpyDefault = 4,        /* taken from the pointers */
} orMemcpyKind;

typedef enum orMemoryType {
  orMemoryTypeUnregistered = 0, /* host memory that was not allocated here: pageable */
  orMemoryTypeHost = 1,         /* pinned host memory */
  orMemoryTypeDevice = 2,
} orMemoryType;

typedef struct orPointerAttributes {
  orMemoryType type;
  int device;          /* of device memory; the device current at orMallocHost for pinned memory; -1 otherwise */
  void* devicePointer; /* the pointer, if kernels may use it, else NULL */
  void* hostPointer;   /* the pointer, if the host may use it, else NULL */
  void* base;          /* start of the allocation, NULL if the pointer lies in none */
  size_t size;         /* bytes of the allocation */
} orPointerAttributes;

/*
 * Device memory: a separate address space that costs nothing.
 *
 * Each device has two windows at a constant distance. Addresses that orMalloc returns lie in the *device window*, which
 * is mapped PROT_NONE: a host that dereferences one gets SIGSEGV, and is told in words (on stderr) which allocation of
 * which device it touched and what to do, before whatever SIGSEGV handler was there before takes over. Kernels reach
 * the same bytes through the *kernel window*; orGetKernelPointer() makes the step. Nothing else may assume the
 * distance.
 *
 * orMalloc: `size` 0 gives NULL and orSuccess. The address is a multiple of 4096, from 2 MiB on a multiple of 2 MiB.
 * orErrorMemoryAllocation when the device's capacity, RLIMIT_AS, the cgroup's limit or the host's memory does not
 * suffice; the message names which, and OPENREG_DEVICE_MEMORY. The contents are undefined. Waits for nothing.
 * orFree: waits for all devices, since each reaches the memory of every other, then gives the pages back to the system.
 * NULL is fine; orErrorInvalidValue if `devPtr` is not the start of an allocation.
 */
OPENREG_EXPORT orError_t orMalloc(void** devPtr, size_t size);
OPENREG_EXPORT orError_t orFree(void* devPtr);

/* Pinned host memory, page aligned: addressable by the host and by kernels, inherited by forked children. orFreeHost
 * waits as orFree does. */
OPENREG_EXPORT orError_t orMallocHost(void** ptr, size_t size);
OPENREG_EXPORT orError_t orFreeHost(void* ptr);

/* Free and total bytes of the current device. */
OPENREG_EXPORT orError_t orMemGetInfo(size_t* free, size_t* total);

/* What a pointer is. An unknown pointer is orSuccess with orMemoryTypeUnregistered. */
OPENREG_EXPORT orError_t orPointerGetAttributes(orPointerAttributes* attributes, const void* ptr);

/* The address at which a kernel may read and write what `devPtr` names. Pinned and ordinary host addresses, and NULL,
 * come back unchanged. The only way from a device address to memory: custom, stub and compiled kernels use nothing
 * else. Never fails, takes a few nanoseconds. */
OPENREG_EXPORT void* orGetKernelPointer(const void* devPtr);

/* The inverse, for allocators that carve kernel memory: an address outside the kernel windows comes back unchanged. */
OPENREG_EXPORT void* orGetDevicePointer(const void* kernelPtr);

/* Lets the host read and write one allocation through its device address, for debugging, until orMemoryProtect. The
 * device window then shows the same bytes as the kernel window. `devPtr` is the start of an allocation. Both wait as
 * orFree does. */
OPENREG_EXPORT orError_t orMemoryUnprotect(void* devPtr);
OPENREG_EXPORT orError_t orMemoryProtect(void* devPtr);

/*
 * Device memory that several processes share. One makes a handle of it, 64 bytes that it sends to others by any means;
 * they open it, and have the same bytes at an address of their own, on their current device.
 *
 * The memory counts against the capacity of the process that allocated it, not of those that open it. It stays valid
 * where it is opened until it is closed, also (unlike in CUDA) when its owner frees it or ends; a handle cannot be opened
 * after that. Nothing here waits for work: whoever sends a handle makes sure that the bytes are there.
 *
 * orIpcGetMemHandle: `devPtr` is what orMalloc returned. The first handle moves the bytes to memory that can be shared,
 * which takes as long as a copy; threads that write to them meanwhile are held up.
 * orIpcOpenMemHandle: a handle that is open already gives the same address again, and is closed once more. `flags` is 0.
 * orErrorDeviceUninitialized in the process that made the handle, orErrorInvalidResourceHandle if the memory is gone
 * or the handle is damaged: a handle is checked, and no damaged one opens other files or maps more than the memory has.
 * orIpcCloseMemHandle: waits as orFree does.
 */
typedef struct orIpcMemHandle {
  char reserved[64];
} orIpcMemHandle_t;
OPENREG_EXPORT orError_t orIpcGetMemHandle(orIpcMemHandle_t* handle, void* devPtr);
OPENREG_EXPORT orError_t orIpcOpenMemHandle(void** devPtr, orIpcMemHandle_t handle, unsigned int flags);
OPENREG_EXPORT orError_t orIpcCloseMemHandle(void* devPtr);

/* Copies `size` bytes after the work already queued on the current device's default stream, and waits for the copy.
 * orErrorInvalidMemcpyDirection when `kind` contradicts the pointers; orErrorInvalidValue when a range leaves its
 * allocation. As every call that waits for a stream, both return an unreported failure of its work, after the copy. */
OPENREG_EXPORT orError_t orMemcpy(void* dst, const void* src, size_t size, orMemcpyKind kind);
OPENREG_EXPORT orError_t orMemset(void* devPtr, int value, size_t size);

/* ---- Execution --------------------------------------------------------------------------------------------------- */

/*
 * When queued work runs. The rules of streams and events hold in every mode.
 *
 * One thread runs the kernels of all streams and all devices, so that the process keeps one OpenMP team beside that of
 * the host's own computations; a second thread runs copies between the host and a device or between two devices,
 * and a third one host functions. Each is started by the first work that is queued for it, and sleeps while there is
 * none. Of several streams with something to run, the one with the most urgent priority comes first.
 *
 * When the process exits, what runs is finished, what is queued is abandoned, and calls from later exit handlers
 * execute inline.
 */
typedef enum orExecutionMode {
  orExecutionInline = 0, /* in the launching call, on its thread, if nothing is pending on the stream; else queued */
  orExecutionAsync = 1,  /* queued, except for what may run inline: see orLaunchMayRunInline */
  /* To make missing synchronisation show: everything is queued, streams take turns at random whatever their priority,
   * each piece of work is delayed before it starts and before it counts as done (at random; half of the delays are 0,
   * the others at most 0.5 ms), and what a copy will write is filled with 0xFF bytes (NaN for floating point) before: when
   * the copy starts, which then waits once more. Pinned memory that work will only write, a copy or a kernel, is filled
   * already in the call that queues the work, unless other pending work may use that memory. */
  orExecutionChaos = 2,
} orExecutionMode;

/* Waits for all devices, then switches; failures stay for the next synchronising call. `seed` starts the sequence of
 * delays and turns of orExecutionChaos, and is ignored otherwise. */
OPENREG_EXPORT orError_t orSetExecutionMode(orExecutionMode mode, uint64_t seed);
/* Whether kernels run when they are launched, on the launching thread (orExecutionInline). Asked before every one, so it
 * cannot fail: false also before the first call that needs a device and in a forked child, where a launch says what is
 * wrong. */
OPENREG_EXPORT bool orExecutesInline(void);
/* The same, without a call. Read it with __atomic_load_n; never write it. */
OPENREG_EXPORT extern bool orInlineFlag;
/* Either may be NULL. */
OPENREG_EXPORT orError_t orGetExecutionMode(orExecutionMode* mode, uint64_t* seed);

/* (optional) What a thread calls before it goes to sleep for other threads' work, in any function of this header that
 * waits, and after: the place to give up a lock of the program's that the other threads may need, such as Python's
 * interpreter lock, and to take it back. `before` returns what `after` gets; if it returns NULL, `after` is not called.
 * Both NULL, the default: nothing is called. No lock of this library is held during the calls. */
typedef void* (*orBeforeWaitFn_t)(void);
typedef void (*orAfterWaitFn_t)(void* token);
OPENREG_EXPORT orError_t orSetWaitCallbacks(orBeforeWaitFn_t before, orAfterWaitFn_t after);

/* (optional) `fn(userData)` is called on the thread that runs kernels, each time when it has had nothing to run for
 * `delayMicroseconds`: the place to give up what kernels keep for that thread, such as its OpenMP team. NULL, the
 * default: nothing is called. Work that is queued meanwhile waits for `fn`. */
typedef void (*orHostFn_t)(void* userData);
OPENREG_EXPORT orError_t orSetIdleCallback(orHostFn_t fn, void* userData, unsigned int delayMicroseconds);

/* ---- Streams ----------------------------------------------------------------------------------------------------- */

/* A queue of work in order, of the device that was current when it was made. NULL is the current device's default
 * stream. */
typedef struct orStream* orStream_t;
typedef struct orEvent* orEvent_t;

/* The default stream of any device as a handle, which unlike NULL names it whatever the current device. Never
 * destroyed. */
OPENREG_EXPORT orError_t orDeviceGetDefaultStream(orStream_t* stream, int device);
OPENREG_EXPORT orError_t orStreamCreate(orStream_t* stream);
/* The stream lives as long as the process: orStreamDestroy refuses it, and its handle is found without a lock. For the
 * streams of a framework's pool. A process can make 16384 of them. */
#define orStreamPersistent 0x1u
/* A priority outside orDeviceGetStreamPriorityRange() is moved into it, as CUDA does. `flags` is 0 or
 * orStreamPersistent. */
OPENREG_EXPORT orError_t orStreamCreateWithPriority(orStream_t* stream, unsigned int flags, int priority);
OPENREG_EXPORT orError_t orStreamGetPriority(orStream_t stream, int* priority);
OPENREG_EXPORT orError_t orStreamGetDevice(orStream_t stream, int* device);
/* Returns at once; what is queued still runs, then the stream goes. */
OPENREG_EXPORT orError_t orStreamDestroy(orStream_t stream);
/* orSuccess: everything queued has run. orErrorNotReady: not yet. Leaves a failure of the stream's work to the next call
 * that waits. */
OPENREG_EXPORT orError_t orStreamQuery(orStream_t stream);
/* Waits. A failure of the stream's work is returned once, then cleared. */
OPENREG_EXPORT orError_t orStreamSynchronize(orStream_t stream);
/* Later work of `stream` waits for the event's last record before this call (nothing if it was never recorded), also if
 * the event is recorded again or destroyed meanwhile. Any device. `flags` is 0. */
OPENREG_EXPORT orError_t orStreamWaitEvent(orStream_t stream, orEvent_t event, unsigned int flags);

/* As orMemcpy and orMemset, queued on `stream`. A copy from pageable memory has read its source when the call returns,
 * a copy to pageable memory has written its destination when the call returns; with pinned memory on the host's side,
 * and between devices, the call does not wait. From pageable memory it waits only if 64 MiB of such copies are queued
 * already. */
OPENREG_EXPORT orError_t orMemcpyAsync(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream);
/* As orMemcpyAsync followed by orStreamSynchronize, without waking another thread for the copy (HIP has it, CUDA does
 * not). */
OPENREG_EXPORT orError_t
orMemcpyWithStream(void* dst, const void* src, size_t size, orMemcpyKind kind, orStream_t stream);
OPENREG_EXPORT orError_t orMemsetAsync(void* devPtr, int value, size_t size, orStream_t stream);

/* ---- Events ------------------------------------------------------------------------------------------------------ */

#define orEventDisableTiming 0x0u /* the default here: PyTorch's default; CUDA's default records times */
#define orEventEnableTiming 0x1u

OPENREG_EXPORT orError_t orEventCreate(orEvent_t* event);
OPENREG_EXPORT orError_t orEventCreateWithFlags(orEvent_t* event, unsigned int flags);
OPENREG_EXPORT orError_t orEventDestroy(orEvent_t event);
/* Marks this point of `stream`, which must be of the event's device. Recording again moves the mark. */
OPENREG_EXPORT orError_t orEventRecord(orEvent_t event, orStream_t stream);
/* orSuccess (also if never recorded) or orErrorNotReady. Leaves a failure to the next call that waits. */
OPENREG_EXPORT orError_t orEventQuery(orEvent_t event);
/* Waits for the last record, and returns an unreported failure of its stream as orStreamSynchronize does. */
OPENREG_EXPORT orError_t orEventSynchronize(orEvent_t event);
/* Milliseconds between the moments when the device reached two records. orErrorInvalidResourceHandle if one was made without timing or never
 * recorded, orErrorNotReady if one is pending. */
OPENREG_EXPORT orError_t orEventElapsedTime(float* ms, orEvent_t start, orEvent_t end);

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

/*
 * Every kernel passes one door, whatever starts it: a kernel that the host computes on the calling thread passes
 * orKernelBegin and orKernelEnd; a kernel that is launched (see Launches) passes the same door when its turn comes.
 *
 * A stream runs one thing at a time, so a kernel needs the *turn* of its stream. orKernelBegin waits until everything
 * that is queued on the stream has run and no other thread's kernel has the turn, then takes it. Until orKernelEnd
 * other threads' launches, copies and kernels on this stream wait; events that they record there are queued. What the
 * thread that has the turn starts on the same stream runs at once, within the turn, and waits for nothing.
 *
 * Two threads whose kernels each want the turn that the other has would wait for ever. The second one to ask goes on
 * without a turn. So does a kernel that begins inside a function that a stream runs.
 *
 * Whoever listens (openreg_activity.h) is told of each kernel's begin and end. If nobody does, that costs one branch.
 */

/* Bytes that a kernel reads or writes: an array of `dims` dimensions whose elements are `itemSize` bytes long. dims 0: one
 * element. */
typedef struct orOperand {
  const void* data; /* the address of the first element, as the device knows it; or pinned memory */
  size_t itemSize;
  int dims;
  const int64_t* sizes;   /* elements a dimension */
  const int64_t* strides; /* bytes from one element to the next */
  unsigned int access;    /* orAccessRead, orAccessWrite, or both */
} orOperand;
#define orAccessRead 0x1u
#define orAccessWrite 0x2u

/* Receives one operand, valid during the call. */
typedef void (*orOperandFn_t)(const orOperand* operand, void* context);

/* What is known of a kernel. */
typedef struct orKernel {
  const char* name; /* of the operator, or of the kernel itself; valid until the process ends */
  /* (optional) Calls `visit(operand, context)` for each operand. Asked for only if somebody listens. NULL: not known; the
   * kernel may read and write anything. */
  void (*operands)(void* data, orOperandFn_t visit, void* context);
  void* data; /* for `operands` */
} orKernel;

/* A kernel on the calling thread. The caller provides the memory; the contents are the library's. */
typedef struct orKernelScope {
  struct orKernelScope* outer;
  void* turn;
  uint64_t id;
  const orKernel* kernel;
  orStream_t stream;
  int device;
} orKernelScope;

/* `kernel` must stay valid until orKernelEnd, which the same thread calls, also if the kernel failed. Kernels of a thread
 * end in the reverse order of their begin. May wait, see above; then, as every call that waits, it may return a failure of
 * earlier work, and no kernel has begun. In orExecutionInline it returns none. */
OPENREG_EXPORT orError_t orKernelBegin(orKernelScope* scope, orStream_t stream, const orKernel* kernel);
/* `failed`: the kernel threw. At this moment `operands` tells of what the kernel wrote, which may be more than was known
 * at its begin: results. Waits for nothing. */
OPENREG_EXPORT void orKernelEnd(orKernelScope* scope, bool failed);

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

/*
 * Queues a call of `fn(userData)` on `stream`: orLaunch for a kernel (openreg_launch.h has the C++ form), which turns
 * device addresses into usable ones with orGetKernelPointer(), orLaunchHostFunc for a function of the host, which does
 * not hold up the kernels of other streams. `fn` runs on any thread, with the stream's device current. It may queue
 * further work, which on its own stream runs after it.
 *
 * As in CUDA, a launch behind 1024 pending items of its stream waits until half of them are done, unless it is made by
 * queued work.
 *
 * A C++ exception that leaves `fn` is the stream's failure: the next call that waits for the stream returns
 * orErrorLaunchFailure, once. Of several failures since the last report the first is kept. Later work still runs.
 *
 * After orSuccess `fn` runs exactly once (never, if the process exits before its turn); after an error it does not run.
 */
#define orLaunchDefault 0x0u
/* The kernel is small: in orExecutionAsync it runs in the launching call, on its thread, if nothing is pending on the
 * stream. That is cheaper than waking another thread. A kernel that uses OpenMP should not ask for it. */
#define orLaunchMayRunInline 0x1u
/* A launch that would have to wait (for a kernel that has the turn, or because of the stream's length) returns
 * orErrorNotReady and does nothing. orStreamAwaitLaunch waits until it would not. */
#define orLaunchNoWait 0x2u
OPENREG_EXPORT orError_t orLaunch(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags);
/* As orLaunch, with what is known of the kernel, which is copied. `kernel->operands` is called before `fn`, never after:
 * `kernel->data` may be `userData`. */
OPENREG_EXPORT orError_t
orLaunchDescribed(orStream_t stream, orHostFn_t fn, void* userData, unsigned int flags, const orKernel* kernel);
OPENREG_EXPORT orError_t orStreamAwaitLaunch(orStream_t stream);
OPENREG_EXPORT orError_t orLaunchHostFunc(orStream_t stream, orHostFn_t fn, void* userData);

/*
 * Work that a library does on threads of its own, such as the transfer of a network. When its turn comes,
 * `fn(userData, completion)` is called as a host function is; it starts the work and returns. The stream goes on when
 * any thread calls orCompletionSignal(completion), which may happen before `fn` has returned. Other host functions, and
 * the work of other streams, run meanwhile. In orExecutionInline the launch returns when `fn` has, and what is launched
 * on the stream afterwards is queued until the completion.
 *
 * `kernel` says what is told of the work (openreg_activity.h): its begin before `fn` is called, its end at the completion.
 * It is copied, and may be NULL; what it points to stays valid as for orLaunchDescribed. orErrorNotPermitted from a
 * thread whose kernel has the turn of the stream.
 *
 * orCompletionSignal: `exception` is NULL, or points to a C++ std::exception_ptr, which becomes the stream's failure.
 * An exception that leaves `fn` completes the work with this failure. orErrorInvalidResourceHandle if the work has
 * completed already. Waits for nothing.
 */
typedef struct orCompletion* orCompletion_t;
typedef void (*orDeferredFn_t)(void* userData, orCompletion_t completion);
OPENREG_EXPORT orError_t orLaunchDeferred(orStream_t stream, orDeferredFn_t fn, void* userData, const orKernel* kernel);
OPENREG_EXPORT orError_t orCompletionSignal(orCompletion_t completion, const void* exception);

/* (optional, for C++) If the calling thread's last failing call returned orErrorLaunchFailure: throws the exception that
 * left `fn`, once. Returns if there is none. */
OPENREG_EXPORT void orRethrowLaunchFailure(void);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_H */
