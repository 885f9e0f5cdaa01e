#include "simulator/transport/GlooConnection.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <cstring>
#include <string>

namespace c10d::openreg {
namespace {

[[noreturn]] void throw_aborted() {
  throw occl::Error(occl::Error::Code::aborted, "The process group was aborted");
}

// Gloo's failures have one type. Only their texts tell a timeout from a broken connection.
[[noreturn]] void throw_as_occl(const std::exception& error) {
  const auto* const inner = dynamic_cast<const c10::Error*>(&error);
  const std::string text(inner != nullptr ? inner->what_without_backtrace() : error.what());
  const bool timed_out = text.find("imed out") != std::string::npos || text.find("timeout") != std::string::npos;
  throw occl::Error(timed_out ? occl::Error::Code::timeout : occl::Error::Code::failed, text);
}

} // namespace

int tag_of(const CollectiveRequest& request) {
  return static_cast<int>((1U << 30) | (request.sequence & ((1U << 30) - 1)));
}

at::Tensor make_buffer(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {}, at::TensorOptions(at::kByte));
}

char* chars(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

void copy(const at::Tensor& to, const void* from) {
  if (to.data_ptr() != from && to.nbytes() != 0) {
    std::memcpy(to.data_ptr(), from, to.nbytes());
  }
}

c10::intrusive_ptr<Work> GlooConnection::send(const at::Tensor& data, int to, int tag) {
  std::vector<at::Tensor> tensors{data};
  return gloo_->send(tensors, to, tag);
}

c10::intrusive_ptr<Work> GlooConnection::recv(const at::Tensor& data, int from, int tag) {
  std::vector<at::Tensor> tensors{data};
  return from < 0 ? gloo_->recvAnysource(tensors, tag) : gloo_->recv(tensors, from, tag);
}

void GlooConnection::wait(const c10::intrusive_ptr<Work>& work, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
      throw_aborted();
    }
    pending_.insert(work);
  }
  const auto forget = c10::make_scope_exit([&] {
    const std::lock_guard lock(mutex_);
    pending_.erase(work);
  });
  bool completed = false;
  try {
    completed = work->wait(deadline.left());
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      throw_as_occl(error);
    }
  }
  if (!completed) {
    throw_aborted();
  }
}

void GlooConnection::abort() {
  std::set<c10::intrusive_ptr<Work>> pending;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    pending = pending_;
  }
  for (const auto& work : pending) {
    work->abort();
  }
}

} // namespace c10d::openreg
