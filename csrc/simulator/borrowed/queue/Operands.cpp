#include "simulator/borrowed/queue/Operands.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <array>

#include "aten/native/Minimal.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "simulator/ThreadOwned.h"
#include "simulator/borrowed/Components.h"
#include "simulator/borrowed/KernelScope.h"

namespace at::openreg {
namespace {

constexpr size_t kFew = 16; // each of the first 16 operands is compared with all operands before it

// Returns the storage of the meta tensor for operand number `operand`. Meta kernels ask for the size of a storage, to
// see whether a result must grow, and for its identity, to see whether operands overlap. So each of the first kFew
// operands has a storage of its own. All later operands share one storage.
c10::intrusive_ptr<c10::StorageImpl> meta_storage(size_t operand) {
  static const auto* storages = [] {
    auto* all = new std::array<c10::intrusive_ptr<c10::StorageImpl>, kFew + 1>;
    for (auto& storage : *all) {
      storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          std::numeric_limits<int64_t>::max(),
          c10::DataPtr(nullptr, Device(kMeta)),
          nullptr,
          /*resizable=*/false);
    }
    return all;
  }();
  return (*storages)[std::min(operand, kFew)];
}

// Meta tensors that later calls use again, because making a new tensor takes longer than most meta kernels.
thread_local constinit c10::openreg::ThreadOwned<std::vector<Tensor>> kept_metas;

// Returns a meta tensor with the shape and dtype of `like`, for operand number `operand`. The thread's next call with
// the same number may change this tensor.
Tensor meta_operand(size_t operand, const TensorImpl& like) {
  if (kept_metas->size() <= operand) {
    kept_metas->resize(operand + 1);
  }
  Tensor& meta = (*kept_metas)[operand];
  TensorImpl* impl = meta.unsafeGetTensorImpl();
  const auto has_math_bits = [](const TensorImpl& tensor) { return tensor.is_conj() || tensor.is_neg(); };
  if (C10_LIKELY(meta.defined() && meta.use_count() == 1 && !has_math_bits(*impl) && !has_math_bits(like))) {
    impl->set_storage_and_dtype(impl->storage(), like.dtype());
    impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    if (C10_UNLIKELY(impl->is_wrapped_number() != like.is_wrapped_number())) {
      impl->set_wrapped_number(like.is_wrapped_number());
    }
  } else {
    meta = make_like(meta_storage(operand), c10::DispatchKey::Meta, like);
  }
  return meta;
}

} // namespace

bool may_be_queued(const c10::StorageImpl* storage) {
  using namespace c10::openreg;
  return storage && !is_cow(storage) &&
         (C10_LIKELY(keeps_cpu_view(storage)) || capture_of(getCurrentOpenRegStream(storage->device().index())) != 0);
}

bool QueuedOperands::add(const Tensor& tensor, bool is_written, Tensor& meta, Tensor& cpu) {
  TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (operands_.size() < kFew) {
    for (QueuedOperand& known : operands_) {
      if (known.device == impl) { // both arguments are one tensor: the kernel must get one alias for both
        known.is_written |= is_written;
        known.is_repeated = true;
        meta = new_reference(known.meta);
        cpu = new_reference(known.cpu);
        return true;
      }
    }
  }
  if (!tensor.defined()) {
  } else if (is_device_tensor(tensor)) {
    if (C10_UNLIKELY(takes_sparse && is_sparse_layout(*impl))) {
      return !is_written && add_sparse(tensor, meta, cpu);
    }
    if (has_components(*impl) || tensor.layout() != kStrided || tensor._is_zerotensor() || !tensor.has_storage()) {
      return false;
    }
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const bool lacks_memory = !storage->data() && impl->numel() > 0;
    if (lacks_memory || !may_be_queued(storage)) {
      return false;
    }
    cpu = make_like(c10::openreg::cpu_view_of(storage), c10::DispatchKey::CPU, *impl);
    meta = meta_operand(operands_.size(), *impl);
  } else { // a CPU tensor that the device rules accept, such as a scalar or indices
    if (tensor.layout() != kStrided || is_written) {
      return false;
    }
    cpu = impl->is_wrapped_number() ? tensor : tensor.clone(); // nobody can change a Python number
    meta = tensor.dim() == 0 ? cpu : meta_operand(operands_.size(), *impl);
  }
  operands_.push_back({impl, cpu.unsafeGetTensorImpl(), meta.unsafeGetTensorImpl(), is_written});
  return true;
}

// The operands are the components. The kernel's tensor consists of their aliases.
bool QueuedOperands::add_sparse(const Tensor& tensor, Tensor& meta, Tensor& cpu) {
  bool can_be_queued = true;
  cpu = map_components(tensor, c10::BackendComponent::CPUBit, [&](const Tensor& component) {
    Tensor its_cpu;
    can_be_queued = add(component, /*is_written=*/false, component_metas_.emplace_back(), its_cpu) && can_be_queued;
    return its_cpu.defined() ? its_cpu : component;
  });
  meta = cpu;
  return can_be_queued;
}

template <class T>
bool QueuedOperands::add_list(const c10::List<T>& tensors, bool is_written) {
  c10::List<T> meta, cpu;
  meta.reserve(tensors.size());
  cpu.reserve(tensors.size());
  for (const T& each : tensors) {
    if constexpr (!std::is_same_v<T, Tensor>) {
      if (!each.has_value()) {
        meta.push_back(std::nullopt);
        cpu.push_back(std::nullopt);
        continue;
      }
    }
    const Tensor& tensor = [&]() -> const Tensor& {
      if constexpr (std::is_same_v<T, Tensor>) {
        return each;
      } else {
        return *each;
      }
    }();
    if (!takes_masks && !std::is_same_v<T, Tensor> && isIntegralType(tensor.scalar_type(), true) &&
        tensor.element_size() == 1) {
      return false; // one index is a mask: the number of elements that it chooses is not known
    }
    Tensor its_meta, its_cpu;
    if (!add(tensor, is_written, its_meta, its_cpu)) {
      return false;
    }
    meta.push_back(std::move(its_meta));
    cpu.push_back(std::move(its_cpu));
  }
  for_meta.emplace_back(std::move(meta));
  for_kernel.emplace_back(std::move(cpu));
  return true;
}

bool QueuedOperands::add(const c10::IValue& value, const c10::Argument& argument) {
  const bool is_written = argument.alias_info() && argument.alias_info()->isWrite();
  if (value.isTensor()) {
    Tensor meta, cpu;
    if (!add(value.toTensor(), is_written, meta, cpu)) {
      return false;
    }
    for_meta.emplace_back(std::move(meta));
    for_kernel.emplace_back(std::move(cpu));
    return true;
  }
  if (value.isTensorList()) {
    return add_list<Tensor>(value.toTensorList(), is_written);
  }
  if (value.isOptionalTensorList()) {
    return add_list<std::optional<Tensor>>(value.toOptionalTensorList(), is_written);
  }
  if (value.isDevice()) {
    const bool is_own = value.toDevice().type() == identity.type;
    for_meta.emplace_back(is_own ? Device(kMeta) : value.toDevice());
    for_kernel.emplace_back(Device(kCPU));
    return is_own;
  }
  if (value.isStorage() || value.isGenerator()) {
    return false;
  }
  for_meta.push_back(value);
  for_kernel.push_back(value);
  return true;
}

void QueuedOperands::resize_outputs(bool only_empty) {
  for (QueuedOperand& written : operands_) {
    if (written.is_written && !written.is_repeated && (!only_empty || written.cpu->numel() == 0) &&
        written.cpu->sizes() != written.meta->sizes()) {
      const Tensor device = new_reference(written.device);
      openreg::resize_(device, written.meta->sizes(), std::nullopt);
      written.device->set_sizes_and_strides(written.meta->sizes(), written.meta->strides());
      written.cpu->set_storage_keep_dtype(
          c10::Storage(c10::openreg::cpu_view_of(device.storage().unsafeGetStorageImpl())));
      written.cpu->set_sizes_and_strides(written.meta->sizes(), written.meta->strides());
    }
  }
}

bool QueuedOperands::fit_the_first() const {
  return std::all_of(operands_.begin(), operands_.end(), [&](const QueuedOperand& each) {
    return !each.defined() || is_expandable_to(each.cpu->sizes(), operands_[0].cpu->sizes());
  });
}

void QueuedOperands::check_overlap() const {
  for (const QueuedOperand& written : operands_) {
    for (const QueuedOperand& other : operands_) {
      if (written.is_written && other.defined()) {
        written.device == other.device
            ? assert_no_internal_overlap(written.device)
            : assert_no_partial_overlap(new_reference(written.device), new_reference(other.device));
      }
    }
  }
}

bool QueuedOperands::can_write() const {
  for (const QueuedOperand& written : operands_) {
    if (!written.is_written) {
      continue;
    }
    if (written.meta->sizes() != written.cpu->sizes() || written.meta->strides() != written.cpu->strides() ||
        has_internal_overlap(written.cpu) == MemOverlap::Yes) {
      return false;
    }
    for (const QueuedOperand& other : operands_) {
      if (other.device != written.device && other.defined() &&
          other.cpu->storage().is_alias_of(written.cpu->storage()) &&
          get_overlap_status(written.cpu, other.cpu) == MemOverlapStatus::Partial) {
        return false;
      }
    }
  }
  return true;
}

} // namespace at::openreg
