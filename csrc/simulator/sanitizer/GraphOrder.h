#pragma once

#include <cstddef>
#include <vector>

namespace c10::openreg::sanitizer {

// Which nodes of a graph come after which others. As the clocks of streams (Clocks.h): the nodes of a *lane* come one
// after the other, and each node knows how many nodes of each lane come before it.
class GraphOrder {
 public:
  // The number of nodes that were added.
  size_t size() const {
    return nodes_.size();
  }
  // Adds a node that directly comes after the nodes after[0] to after[count - 1].
  void add(const size_t* after, size_t count);
  // Whether the node `first` comes before the node `second`, which was added later.
  bool is_before(size_t first, size_t second) const;

 private:
  struct Node {
    size_t lane = 0;
    std::vector<size_t> known{}; // by lane: how many nodes of the lane come before this one, which counts itself
  };
  std::vector<Node> nodes_;
  std::vector<size_t> lanes_; // how many nodes each lane has
};

} // namespace c10::openreg::sanitizer
