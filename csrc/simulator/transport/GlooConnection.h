#pragma once

#include <occl_transport.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <mutex>
#include <set>

#include "distributed/CollectiveEngine.h"

namespace c10d::openreg {

using occl::Deadline;
using occl::Header;
using occl::Plan;

// Data of up to this many bytes is sent in the same message as its header or plan.
constexpr size_t kInline = 4096;

// The gloo tag of a collective. The user's send and recv have the tag 0: they match in their order, as NCCL's do.
int tag_of(const CollectiveRequest& request);

at::Tensor make_buffer(size_t bytes);
at::Tensor as_bytes(const at::Tensor& tensor);
char* chars(const at::Tensor& tensor);
void copy(const at::Tensor& to, const void* from);

// Messages between the ranks of a gloo group, and waits that abort() ends.
class GlooConnection final {
 public:
  explicit GlooConnection(c10::intrusive_ptr<Backend> gloo) : gloo_(std::move(gloo)) {}

  const c10::intrusive_ptr<Backend>& gloo() const {
    return gloo_;
  }
  c10::intrusive_ptr<Work> send(const at::Tensor& data, int to, int tag);
  c10::intrusive_ptr<Work> recv(const at::Tensor& data, int from, int tag);
  // Waits for the work. Throws its failure; an occl::Error if the work has timed out, or after abort().
  void wait(const c10::intrusive_ptr<Work>& work, const Deadline& deadline);
  void abort();

 private:
  const c10::intrusive_ptr<Backend> gloo_;
  std::mutex mutex_;
  std::set<c10::intrusive_ptr<Work>> pending_; // the works that abort() aborts
  bool aborted_ = false;
};

} // namespace c10d::openreg
