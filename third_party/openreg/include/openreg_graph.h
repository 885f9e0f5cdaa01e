/*
 * openreg_graph: work that is captured once and replayed many times, as CUDA's graphs.
 *
 *     orStreamBeginCapture(stream, orStreamCaptureModeGlobal);
 *     ...                                 launches, copies, fills and events on `stream`: nothing runs
 *     orStreamEndCapture(stream, &graph);
 *     orGraphInstantiate(&exec, graph, 0);
 *     orGraphLaunch(exec, stream);        runs all of it, each time
 *
 * What a capture takes. While a stream captures, these calls on it run nothing and add a *node* to the graph: orLaunch,
 * orLaunchDescribed, orLaunchKernel, orLaunchHostFunc, orLaunchDeferred, orMemcpyAsync, orMemsetAsync and orGraphLaunch.
 * A node keeps the arguments of its call: addresses, not bytes. Each replay reads and writes what then is at these
 * addresses. A node comes after all nodes that its stream has captured before it.
 *
 * Several streams. A capture begins on its *origin* stream. Another stream joins the capture when it waits for an event
 * that was recorded in a stream of the capture. It leaves the capture when the capture ends; before that, the origin
 * must have waited for all of its work. Streams of other devices can join. A default stream cannot.
 *
 * What a capture refuses. A call that needs a result of the device cannot be captured: it returns an error, and
 * *invalidates* the capture. From then on every call on a stream of the capture returns
 * orErrorStreamCaptureInvalidated, whose message quotes the first error. orStreamEndCapture returns the same error, and
 * then the streams work as before. The refused calls are:
 *   - on a stream of the capture: orStreamSynchronize, orStreamQuery, orStreamDestroy, orMemcpyWithStream, a kernel that
 *     the calling thread computes (orKernelBegin), a launch with orLaunchOnce, and a copy from or to pageable memory
 *     (orErrorStreamCaptureUnsupported)
 *   - on an event that was last recorded in a capture: orEventQuery, orEventSynchronize and orEventElapsedTime
 *     (orErrorCapturedEvent)
 *   - orDeviceSynchronize of a device with a stream that captures, and orSetExecutionMode
 *     (orErrorStreamCaptureUnsupported)
 *   - to wait for an event that was recorded outside of the capture (orErrorStreamCaptureIsolation) or in another
 *     capture (orErrorStreamCaptureMerge), and to make a default stream wait for an event of a capture
 *     (orErrorStreamCaptureImplicit)
 *   - between orStreamBeginConditional and orStreamEndConditional, what is no kernel, copy or fill
 *     (orErrorStreamCaptureUnsupported)
 *   - *unsafe calls*, which might wait for the device: see orStreamCaptureMode.
 *
 * Subscribers (openreg_activity.h) are not notified of calls that are captured. They are notified of each replay: of
 * the call orGraphLaunch, and of the kernels, copies and fills that it runs, as if they were launched on its stream.
 *
 * Differences from CUDA: nodes are made by a capture only, and an executable graph cannot be updated.
 */
#ifndef OPENREG_GRAPH_H
#define OPENREG_GRAPH_H

#include "openreg.h"

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct orGraph* orGraph_t;
typedef struct orGraphExec* orGraphExec_t;

/* ---- Capture ----------------------------------------------------------------------------------------------------- */

/*
 * Which unsafe calls a capture refuses. These calls are unsafe: orMalloc, orFree, orMallocHost, orFreeHost,
 * orHostRegister, orHostUnregister, orMemoryProtect, orMemoryUnprotect, orIpcOpenMemHandle, orIpcCloseMemHandle,
 * orMemcpy, orMemset, and on streams and events outside of the capture orStreamSynchronize, orStreamQuery,
 * orMemcpyWithStream, orEventSynchronize and orEventQuery.
 */
typedef enum orStreamCaptureMode {
  orStreamCaptureModeGlobal = 0,      /* those of all threads */
  orStreamCaptureModeThreadLocal = 1, /* those of the thread that began the capture */
  orStreamCaptureModeRelaxed = 2,     /* none */
} orStreamCaptureMode;

typedef enum orStreamCaptureStatus {
  orStreamCaptureStatusNone = 0,
  orStreamCaptureStatusActive = 1,
  orStreamCaptureStatusInvalidated = 2, /* the stream still captures; see above */
} orStreamCaptureStatus;

/* The number of captures in the process. Read it through orMayCapture(); never write it. */
OPENREG_EXPORT extern unsigned int orCaptureCount;

/* Whether any stream of the process captures. Costs one load. */
static inline bool orMayCapture(void) {
  return __builtin_expect(__atomic_load_n(&orCaptureCount, __ATOMIC_RELAXED) != 0, 0);
}

/* Begins a capture. Work that is pending on the stream still runs, and is no part of the graph. Returns
 * orErrorStreamCaptureUnsupported for a default stream, orErrorIllegalState if the stream captures already, and
 * orErrorNotPermitted if a kernel of the calling thread has the turn of the stream. */
OPENREG_EXPORT orError_t orStreamBeginCapture(orStream_t stream, orStreamCaptureMode mode);

/* Ends the capture that began on `stream`, and returns its graph.
 *
 * These errors change nothing: orErrorIllegalState if the stream does not capture, orErrorStreamCaptureUnmatched if the
 * capture began on another stream, and orErrorStreamCaptureWrongThread if it began on another thread in a mode other
 * than orStreamCaptureModeRelaxed. After these errors the capture has ended, and `graph` is NULL:
 * orErrorStreamCaptureInvalidated, and orErrorStreamCaptureUnjoined if the origin has not waited for all work of
 * another stream. */
OPENREG_EXPORT orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph);

OPENREG_EXPORT orError_t orStreamIsCapturing(orStream_t stream, orStreamCaptureStatus* status);

/* The status; and, if the stream captures, the number of the capture, which no other capture of the process has, and
 * its graph. The graph belongs to the capture. `id` and `graph` may be NULL. */
OPENREG_EXPORT orError_t
orStreamGetCaptureInfo(orStream_t stream, orStreamCaptureStatus* status, uint64_t* id, orGraph_t* graph);

/* Exchanges the mode of the calling thread, which is orStreamCaptureModeGlobal at first, with `*mode`. In
 * orStreamCaptureModeThreadLocal, captures of other threads do not refuse the thread's unsafe calls; in
 * orStreamCaptureModeRelaxed no capture does. */
OPENREG_EXPORT orError_t orThreadExchangeStreamCaptureMode(orStreamCaptureMode* mode);

/* orEventRecord with a flag. In a capture, orEventRecord only notes the point of the capture that the event stands for.
 * With orEventRecordExternal it adds a node instead: each replay records the event, for work outside of the graph. */
OPENREG_EXPORT orError_t orEventRecordWithFlags(orEvent_t event, orStream_t stream, unsigned int flags);
#define orEventRecordDefault 0x0u
#define orEventRecordExternal 0x1u

/*
 * Adds a conditional node. The nodes that are captured after it, until orStreamEndConditional, are its *body*: a replay
 * that comes to the node reads the `size` bytes at `condition`, and skips the body if all of them are 0. So the kernels
 * before the node decide. Conditional nodes can be nested. `condition` is memory of the device.
 *
 * Other streams that join the capture in the body belong to it. They must be joined again before its end
 * (orErrorStreamCaptureUnjoined). Both calls return orErrorIllegalState if the stream does not capture, and
 * orStreamEndConditional also if the stream is in no body. A capture cannot end in a body. As cudaGraphAddNode with
 * cudaGraphNodeTypeConditional and cudaGraphCondTypeIf.
 */
OPENREG_EXPORT orError_t orStreamBeginConditional(orStream_t stream, const void* condition, size_t size);
OPENREG_EXPORT orError_t orStreamEndConditional(orStream_t stream);

/* A flag of orStreamWaitEvent. In a capture it adds a node: each replay waits for the event's last record before it. */
#define orEventWaitExternal 0x1u

/* ---- Graphs ------------------------------------------------------------------------------------------------------ */

typedef enum orGraphNodeType {
  orGraphNodeTypeKernel = 0,
  orGraphNodeTypeMemcpy = 1,
  orGraphNodeTypeMemset = 2,
  orGraphNodeTypeHost = 3,
  orGraphNodeTypeWaitEvent = 6,
  orGraphNodeTypeEventRecord = 7,
  orGraphNodeTypeConditional = 13,
} orGraphNodeType;

typedef struct orGraphNode {
  orGraphNodeType type;
  int device;
  const char* name; /* of a kernel, or NULL */
  const size_t*
      dependencies; /* the numbers of the nodes that this one directly comes after; each is smaller than its own */
  size_t dependencyCount;
} orGraphNode;

/* The nodes have numbers from 0 on, in the order of the calls that were captured. `node` is valid until the graph is
 * destroyed. */
OPENREG_EXPORT orError_t orGraphGetNodeCount(orGraph_t graph, size_t* count);
OPENREG_EXPORT orError_t orGraphGetNode(orGraph_t graph, size_t number, orGraphNode* node);

/* Gives the graph the ownership of an object that its nodes use, such as the arguments of a kernel. `destroy(object)`
 * is called when the graph and all executable graphs that were made from it are gone, on any thread; it must not call
 * functions of the device. May be called during the capture, with the graph of orStreamGetCaptureInfo. After an error
 * the object still belongs to the caller. */
OPENREG_EXPORT orError_t orGraphRetainUserObject(orGraph_t graph, void* object, orHostFn_t destroy);

/* Makes the handle invalid. Executable graphs are not affected. */
OPENREG_EXPORT orError_t orGraphDestroy(orGraph_t graph);

/* Writes the graph to a file, in the language DOT of Graphviz. `flags` is 0. */
OPENREG_EXPORT orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path, unsigned int flags);

/* ---- Executable graphs ------------------------------------------------------------------------------------------- */

/* Makes an executable graph. `flags` is 0. Returns orErrorIllegalState if the capture of the graph has not ended. */
OPENREG_EXPORT orError_t orGraphInstantiate(orGraphExec_t* exec, orGraph_t graph, unsigned int flags);

/*
 * Replays the graph on `stream`, as one piece of work: the nodes run after all work that is queued there, and later
 * work of the stream runs after all nodes. Nodes that do not depend on each other may overlap, as work of different
 * streams does. Launches of one executable graph run one after the other, on whatever streams. It must not be launched
 * by two threads at once.
 *
 * Waits as a launch does. In orExecutionInline the nodes run in the call, in the order of the capture, unless work is
 * pending. If an exception leaves a node, `stream` has failed, as after any launch; the other nodes still run. In a
 * capture, the nodes of the graph are added to the graph that is captured.
 */
OPENREG_EXPORT orError_t orGraphLaunch(orGraphExec_t exec, orStream_t stream);

/* Makes the handle invalid and returns at once. Launches that are pending still run. */
OPENREG_EXPORT orError_t orGraphExecDestroy(orGraphExec_t exec);

#if defined(__cplusplus)
}
#endif

#endif /* OPENREG_GRAPH_H */
