#include "simulator/sanitizer/GraphOrder.h"

#include <algorithm>
#include <utility>

namespace c10::openreg::sanitizer {

void GraphOrder::add(const size_t* after, size_t count) {
  Node node;
  for (size_t i = 0; i < count; ++i) {
    const std::vector<size_t>& before = nodes_[after[i]].known;
    node.known.resize(std::max(node.known.size(), before.size()));
    for (size_t lane = 0; lane < before.size(); ++lane) {
      node.known[lane] = std::max(node.known[lane], before[lane]);
    }
  }
  while (node.lane < node.known.size() && node.known[node.lane] < lanes_[node.lane]) {
    ++node.lane; // the lane has nodes that do not come before this one
  }
  if (node.lane == node.known.size()) { // no lane ends before this node: the node begins one
    node.lane = lanes_.size();
    lanes_.push_back(0);
    node.known.resize(lanes_.size());
  }
  node.known[node.lane] = ++lanes_[node.lane];
  nodes_.push_back(std::move(node));
}

bool GraphOrder::is_before(size_t first, size_t second) const {
  const Node& node = nodes_[first];
  const std::vector<size_t>& known = nodes_[second].known;
  return node.lane < known.size() && known[node.lane] >= node.known[node.lane];
}

} // namespace c10::openreg::sanitizer
