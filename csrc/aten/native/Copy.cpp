#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy_ops.h>

#include <tuple>

#include "../../runtime/OpenRegWait.h"
#include "KernelScope.h"
#include "Layouts.h"
#include "Minimal.h"
#include "Queue.h"

// Copies between the host and a device, between devices, and on one device, with conversion of dtype, layout and the lazy
// conj and neg bits. All of it is the CPU's copy_ over aliases: the bits stay on the aliases, so nothing is materialised.
namespace at::openreg {
namespace {

bool copyable(const Tensor& tensor) {
  return (tensor.layout() == kStrided || has_components(*tensor.unsafeGetTensorImpl())) &&
         (tensor.is_privateuseone() || tensor.is_cpu());
}

// Whether the copy is one block of bytes between the host and a device, or between devices: the device's own copy then
// does it. Everything else converts or rearranges, and within a device PyTorch's kernel uses all threads.
bool is_block(const Tensor& self, const Tensor& source) {
  return self.device() != source.device() && self.scalar_type() == source.scalar_type() &&
         self.sizes() == source.sizes() && self.is_contiguous() && source.is_contiguous() &&
         self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
}

// Runs `copy` with the stream that the copy belongs on: the current one of the source's device, as in CUDA, or of the
// only device. Between devices, both devices' current streams wait for each other before and after.
template <class Copy>
void on_copy_stream(const Tensor& self, const Tensor& source, const Copy& copy) {
  const auto current = [](const Tensor& tensor) { return c10::openreg::current_stream(tensor.device().index()); };
  const Stream stream = current(source.is_privateuseone() ? source : self);
  const bool peers = self.is_privateuseone() && source.is_privateuseone() && self.device() != source.device();
  if (peers) {
    c10::openreg::wait_for_stream(stream, current(self));
  }
  copy(stream);
  if (peers) {
    c10::openreg::wait_for_stream(current(self), stream);
  }
}

void copy_block(const Tensor& self, const Tensor& source, bool non_blocking) {
  void* to = self.mutable_data_ptr();
  const void* from = source.const_data_ptr();
  const size_t size = self.nbytes();
  on_copy_stream(self, source, [&](Stream stream) {
    const orStream_t queue = c10::openreg::stream_handle(stream);
    const bool with_host = self.is_cpu() || source.is_cpu();
    if (with_host && !non_blocking) {
      c10::openreg::note_synchronization();
      OPENREG_CHECK(orMemcpyWithStream(to, from, size, orMemcpyDefault, queue));
      c10::openreg::tell_wait(queue);
      return;
    }
    OPENREG_CHECK(orMemcpyAsync(to, from, size, orMemcpyDefault, queue));
    for (const Tensor* tensor : std::initializer_list<const Tensor*>{&self, &source}) {
      if (tensor->is_cpu()) { // a pinned block must not be reused before the copy has passed
        const auto& data = tensor->storage().data_ptr();
        at::getHostAllocator(DeviceType::PrivateUse1)->record_event(data.get(), data.get_context(), stream);
      }
    }
  });
}

// What a queued copy works on: the device tensor's alias; pinned memory itself; what else is on the host as it is now.
Tensor queued_operand(const Tensor& tensor, bool is_source) {
  const TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (tensor.is_privateuseone()) {
    return c10::openreg::keeps_twin(storage) && !c10::openreg::is_cow(storage)
               ? make_like(c10::openreg::twin_of(storage), c10::DispatchKey::CPU, impl)
               : Tensor();
  }
  if (at::getHostAllocator(DeviceType::PrivateUse1) && tensor.is_pinned()) {
    return make_like(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), c10::DispatchKey::CPU, impl);
  }
  return is_source ? tensor.clone() : Tensor();
}

// Queues the CPU's copy_ where the host need not wait for it. False: for the caller to do, and for what is wrong to be
// said.
bool queue_copy(const Tensor& self, const Tensor& source, bool non_blocking) {
  const bool with_host = self.is_cpu() || source.is_cpu();
  if ((with_host && !non_blocking) || self.is_same(source) || !is_expandable_to(source.sizes(), self.sizes()) ||
      has_internal_overlap(self) == MemOverlap::Yes) {
    return false;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  const Tensor to = queued_operand(self, false), from = queued_operand(source, true);
  if (!to.defined() || !from.defined()) {
    return false;
  }
  if (to.is_alias_of(from) && get_overlap_status(to, from) == MemOverlapStatus::Partial) {
    return false;
  }
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(at::_ops::copy_::name, at::_ops::copy_::overload_name);
  on_copy_stream(self, source, [&](Stream stream) { queue_on(stream, op, {to, from, non_blocking}); });
  return true;
}

// copy_ is what moves tensors between devices: its operands may be anywhere, so that its scope sees none of them.
const DevicePolicy kAnywhere{.name = "aten::copy_"};

// The CPU's copy_ on this thread.
void copy_now(Tensor& self, const Tensor& source, bool non_blocking, Stream stream) {
  const std::tuple operands(&self, &source, non_blocking);
  const auto visit_operands = [](void* data, orOperandFn_t visit, void* context) {
    const auto [self, source, non_blocking] = *static_cast<const std::tuple<Tensor*, const Tensor*, bool>*>(data);
    const auto visit_all = [&](const Tensor& tensor, unsigned access) {
      const bool is_pinned = non_blocking && tensor.is_cpu() && tensor.is_pinned(); // CUDA's copy uses it later
      for_each_component(tensor, [&](const TensorImpl& part) {
        if (part.device().is_privateuseone() || is_pinned) {
          c10::openreg::visit_tensor(part, access, visit, context);
        }
      });
    };
    visit_all(*self, orAccessWrite);
    visit_all(*source, orAccessRead);
  };
  const c10::openreg::Kernel kernel(
      c10::openreg::stream_handle(stream),
      kAnywhere.name.c_str(),
      visit_operands,
      const_cast<void*>(static_cast<const void*>(&operands)));
  if (!non_blocking && self.device().type() != source.device().type() && C10_UNLIKELY(c10::openreg::wait_is_told())) {
    c10::openreg::tell_wait(c10::openreg::stream_handle(stream));
  }
  KernelScope scope(kAnywhere);
  scope.enter();
  if (C10_UNLIKELY(has_components(*self.unsafeGetTensorImpl()) || has_components(*source.unsafeGetTensorImpl()))) {
    // Replaces components rather than bytes: the CPU's kernel makes them in host memory, write_back() moves them.
    scope.alias(self)->copy_(*scope.alias(source), non_blocking);
    scope.write_back();
    return;
  }
  Tensor destination = *scope.alias(self);
  at::_ops::copy_::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), destination, *scope.alias(source), non_blocking);
}

} // namespace

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      copyable(self) && copyable(source),
      "copy_ from ",
      source.toString(),
      " on ",
      source.device(),
      " to ",
      self.toString(),
      " on ",
      self.device(),
      " is not supported by the openreg device.");
  TORCH_CHECK(
      !self._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  if (C10_UNLIKELY(source._is_zerotensor())) { // it has no memory
    return self.zero_();
  }
  check_memory(*self.unsafeGetTensorImpl(), "aten::copy_");
  check_memory(*source.unsafeGetTensorImpl(), "aten::copy_");
  const bool dense = !has_components(*self.unsafeGetTensorImpl()) && !has_components(*source.unsafeGetTensorImpl());
  if (dense && is_block(self, source)) {
    c10::openreg::check_not_forked();
    if (self.numel() > 0) {
      copy_block(self, source, non_blocking);
    }
    return self;
  }
  if (C10_UNLIKELY(!c10::openreg::executes_inline()) && dense && queue_copy(self, source, non_blocking)) {
    return self;
  }
  if (!non_blocking && self.device().type() != source.device().type()) {
    c10::openreg::note_synchronization();
  }
  on_copy_stream(self, source, [&](Stream stream) { copy_now(self, source, non_blocking, stream); });
  return self;
}

Tensor _copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  Tensor written = destination;
  copy_(written, self, non_blocking);
  return destination;
}

Tensor _copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  at::native::resize_output(destination, self.sizes());
  return openreg::_copy_from(self, destination, false);
}

} // namespace at::openreg
