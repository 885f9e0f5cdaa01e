#include "graph.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "runtime.h"

// The functions of openreg_graph.h about graphs.
namespace openreg {

HandleTable<Graph, orGraph_t>& graphs() {
  static auto* const table = new HandleTable<Graph, orGraph_t>(); // other threads use it while the process exits
  return *table;
}

std::shared_ptr<Graph> resolveGraph(orGraph_t graph) {
  std::shared_ptr<Graph> found = graphs().find(graph);
  if (!found) {
    fail(orErrorInvalidResourceHandle, "graph %p does not exist; it was destroyed, or is no graph", (void*)graph);
  }
  return found;
}

namespace {

const char* nameOf(const GraphNode& node) {
  switch (node.type) {
    case orGraphNodeTypeMemcpy:
      return "memcpy";
    case orGraphNodeTypeMemset:
      return "memset";
    case orGraphNodeTypeHost:
      return "host function";
    case orGraphNodeTypeWaitEvent:
      return "event wait";
    case orGraphNodeTypeEventRecord:
      return "event record";
    case orGraphNodeTypeConditional:
      return "if";
    case orGraphNodeTypeKernel:
      break;
  }
  return node.work.what.name != nullptr ? node.work.what.name : "kernel";
}

std::string inDot(const Graph& graph) {
  std::string text = "digraph openreg {\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    const std::string number = std::to_string(i);
    text += "  n" + number + " [label=\"" + number + " " + nameOf(node) + "\\ndevice " + std::to_string(node.device);
    if (node.condition != kAlways) {
      text += "\\nif " + std::to_string(node.condition);
    }
    text += node.type == orGraphNodeTypeKernel ? "\" shape=box];\n" : "\"];\n";
    for (const size_t before : node.after) {
      text += "  n" + std::to_string(before) + " -> n" + number + ";\n";
    }
  }
  return text + "}\n";
}

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orGraphGetNodeCount(orGraph_t graph, size_t* count) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (count == nullptr) {
      return fail(orErrorInvalidValue, "count is NULL; pass the address of a size_t");
    }
    const auto found = resolveGraph(graph);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    const std::lock_guard lock(graphLock);
    *count = found->nodes.size();
    return orSuccess;
  });
}

orError_t orGraphGetNode(orGraph_t graph, size_t number, orGraphNode* node) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (node == nullptr) {
      return fail(orErrorInvalidValue, "node is NULL; pass the address of an orGraphNode");
    }
    const auto found = resolveGraph(graph);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    const std::lock_guard lock(graphLock);
    if (number >= found->nodes.size()) {
      return fail(orErrorInvalidValue, "number is %zu, but the graph has %zu nodes", number, found->nodes.size());
    }
    const GraphNode& own = found->nodes[number];
    *node = {own.type, own.device, own.work.what.name, own.after.data(), own.after.size()};
    return orSuccess;
  });
}

orError_t orGraphRetainUserObject(orGraph_t graph, void* object, orHostFn_t destroy) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (destroy == nullptr) {
      return fail(orErrorInvalidValue, "destroy is NULL; pass a function");
    }
    const auto found = resolveGraph(graph);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    const std::lock_guard lock(graphLock);
    found->objects.reserve(found->objects.size() + 1); // throws now, while the object still belongs to the caller
    found->objects.emplace_back(object, destroy);
    return orSuccess;
  });
}

orError_t orGraphDestroy(orGraph_t graph) {
  return releaseCall(__func__, [&]() -> orError_t {
    const auto found = resolveGraph(graph); // destroyed at the end of the call, while no lock is held
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    graphs().remove(graph);
    return orSuccess;
  });
}

orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path, unsigned int flags) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (path == nullptr) {
      return fail(orErrorInvalidValue, "path is NULL; pass the name of a file");
    }
    if (flags != 0) {
      return fail(orErrorInvalidValue, "flags is %u; no flag exists, pass 0", flags);
    }
    const auto found = resolveGraph(graph);
    if (!found) {
      return orErrorInvalidResourceHandle;
    }
    std::string text;
    {
      const std::lock_guard lock(graphLock);
      text = inDot(*found);
    }
    std::FILE* const file = std::fopen(path, "w");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file != nullptr && std::fclose(file) != 0) || !written) {
      return fail(orErrorOperatingSystem, "cannot write %s: %s", path, std::strerror(errno));
    }
    return orSuccess;
  });
}
