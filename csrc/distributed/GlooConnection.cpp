#include "distributed/GlooConnection.h"

#include <ATen/ATen.h>
#include <c10/util/ScopeExit.h>

#include <cstring>

#include "distributed/Header.h"

namespace c10d::openreg {
namespace {

[[noreturn]] void refuse_aborted() {
  throw Refusal({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "The process group was aborted");
}

} // namespace

int tag_of(const Request& request) {
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
      refuse_aborted();
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
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      throw;
    }
  }
  if (!completed) {
    refuse_aborted();
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
