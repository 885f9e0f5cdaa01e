/*
 * openreg_graph_activity: what a subscriber (openreg_activity.h) can know of graphs (openreg_graph.h).
 *
 * A subscriber is not notified of calls that are captured, but of the nodes that they make, if it asks for
 * orActivityNode. It is notified of each replay: of the call orGraphLaunch, of the work of all nodes, and of the records
 * and waits of external events, as if the program had made these calls on the stream of the launch.
 */
#ifndef OPENREG_GRAPH_ACTIVITY_H
#define OPENREG_GRAPH_ACTIVITY_H

#include "openreg_activity.h"

/*
 * A kind besides those of orActivityKind: a capture has made a node of a kernel, copy or fill. The activity is a point,
 * on the calling thread. Its stream, name and operands are those of the work, which does not run now. A replay notifies
 * of an orActivityLaunch for each of these nodes, in the same order, within its orActivityCall.
 *
 * orActivity.object points to an orCapturedNode, which is valid during the callback. After orActivityStop() the node
 * stays in the graph, and the call that is captured returns the error.
 */
#define orActivityNode ((orActivityKind)1024)

typedef struct orCapturedNode {
  uintptr_t graph; /* stands for the graph, and for no other graph of the process; orActivity.object of orGraphLaunch */
  size_t number;   /* of the node in the graph: orGraphGetNode, with the graph of orStreamGetCaptureInfo */
} orCapturedNode;

#endif /* OPENREG_GRAPH_ACTIVITY_H */
