#include "simulator/borrowed/KernelScope.h"

#include <algorithm>
#include <array>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegWait.h"
#include "simulator/ThreadOwned.h"
#include "simulator/borrowed/Components.h"
#include "simulator/borrowed/OpenMPTeam.h"
#include "simulator/borrowed/Recycled.h"

namespace at::openreg {
namespace {

constexpr c10::DispatchKeySet kMathBits({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});

// A tensor with the sizes, strides and dtype of another tensor, and with another backend.
struct AliasImpl final : c10::TensorImpl, Recycled {
  // The version counter is that of `like`. The constructor of the base class makes no counter of its own, because the
  // alias has no key of autograd yet.
  AliasImpl(c10::Storage&& storage, c10::DispatchKey backend, const c10::TensorImpl& like)
      : TensorImpl(VIEW, std::move(storage), c10::DispatchKeySet(backend), like.dtype()) {
    version_counter_ = like.version_counter();
    imitate(like);
  }

  // Gives this CPU tensor the state that the constructor would give to a new one. Only the version counter differs: this
  // object keeps a counter of its own.
  void reuse(c10::intrusive_ptr<c10::StorageImpl> storage, const c10::TensorImpl& like) {
    storage_ = c10::Storage(std::move(storage));
    data_type_ = like.dtype();
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::CPU);
    imitate(like);
  }

  // Whether reuse() would change nothing.
  bool is_alias(const c10::StorageImpl* storage, const c10::TensorImpl& like) const {
    constexpr c10::DispatchKeySet kCopied = c10::inplace_or_view_ks | kMathBits; // the keys that imitate() reads
    return storage_.unsafeGetStorageImpl() == storage && sizes_and_strides_ == sizes_and_strides_of(like) &&
           data_type_ == like.dtype() && storage_offset_ == like.storage_offset() &&
           (key_set_ & kCopied) == (like.key_set() & kCopied) && is_wrapped_number_ == like.is_wrapped_number();
  }

  // Drops what the tensor shares with others, except a CPU view, which owns no memory. Returns whether the tensor can be
  // reused.
  bool retire() {
    if (C10_UNLIKELY(storage_ && storage_.data_ptr().get_context() != nullptr)) {
      storage_ = c10::Storage();
    }
    if (!version_counter_.enabled() || !version_counter_.unique()) {
      version_counter_ = c10::VariableVersion(0);
    }
    return !autograd_meta() && !extra_meta_;
  }

 private:
  static const c10::impl::SizesAndStrides& sizes_and_strides_of(const c10::TensorImpl& tensor) {
    return const_cast<c10::TensorImpl&>(tensor).sizes_and_strides(); // which has no const form
  }

  void imitate(const c10::TensorImpl& like) {
    if (C10_LIKELY(like.key_set().has_any(c10::inplace_or_view_ks))) { // `like` is no inference tensor
      const auto backend = key_set_.highestBackendKey();
      key_set_ = key_set_ | c10::getAutogradRelatedKeySetFromBackend(backend) |
                 c10::getAutocastRelatedKeySetFromBackend(backend);
    }
    key_set_ = key_set_ | (like.key_set() & kMathBits);
    // set_sizes_and_strides() would compute again what `like` knows.
    sizes_and_strides_ = sizes_and_strides_of(like);
    storage_offset_ = like.storage_offset();
    numel_ = like.numel();
    is_wrapped_number_ = like.is_wrapped_number();
    is_contiguous_ = like.is_contiguous();
    if (C10_LIKELY(is_contiguous_ && like.dim() < 4)) { // has no channels, so the other flags are known
      is_channels_last_ = is_channels_last_contiguous_ = false;
      is_channels_last_3d_ = is_channels_last_3d_contiguous_ = false;
      is_non_overlapping_and_dense_ = true;
      return;
    }
    is_channels_last_ = like.is_strides_like_channels_last();
    is_channels_last_contiguous_ = like.is_contiguous(MemoryFormat::ChannelsLast);
    is_channels_last_3d_ = like.is_strides_like_channels_last_3d();
    is_channels_last_3d_contiguous_ = like.is_contiguous(MemoryFormat::ChannelsLast3d);
    is_non_overlapping_and_dense_ = like.is_non_overlapping_and_dense();
  }
};

c10::intrusive_ptr<c10::StorageImpl> new_reference(c10::StorageImpl* storage) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage);
}

// The CPU aliases of the thread that are not in use. Filling in an alias is cheaper than making and dropping one, and
// the alias that a tensor had in the last call usually fits as it is.
class KeptAliases {
 public:
  Tensor take(c10::StorageImpl* storage, const c10::TensorImpl& like) {
    auto& slot = slot_of(like);
    if (C10_UNLIKELY(!slot)) {
      if (others_.empty()) {
        return make_like(new_reference(storage), c10::DispatchKey::CPU, like);
      }
      slot = std::move(others_.back());
      others_.pop_back();
    }
    if (!slot->is_alias(storage, like)) {
      slot->reuse(new_reference(storage), like);
    }
    return Tensor(std::move(slot));
  }

  // Takes back the alias of `like`, if nobody else uses it.
  void keep(Tensor&& tensor, const c10::TensorImpl& like) {
    auto alias = tensor.unsafeReleaseIntrusivePtr();
    if (C10_UNLIKELY(!alias.is_uniquely_owned())) {
      return;
    }
    auto own = c10::intrusive_ptr<AliasImpl>::reclaim(static_cast<AliasImpl*>(alias.release()));
    if (C10_UNLIKELY(!own->retire())) {
      return;
    }
    if (auto& slot = slot_of(like); C10_LIKELY(!slot)) {
      slot = std::move(own);
    } else if (others_.size() < kSlots) {
      others_.push_back(std::move(own));
    }
  }

 private:
  using AliasPtr = c10::intrusive_ptr<AliasImpl>;
  static constexpr unsigned kBits = 8; // enough for one step of an optimizer
  static constexpr size_t kSlots = size_t{1} << kBits;

  std::array<AliasPtr, kSlots> slots_; // by the address of the device tensor
  std::vector<AliasPtr> others_;

  AliasPtr& slot_of(const c10::TensorImpl& like) {
    return slots_[reinterpret_cast<uintptr_t>(&like) * 0x9E3779B97F4A7C15 >> (64 - kBits)]; // Fibonacci hashing
  }
};
thread_local constinit c10::openreg::ThreadOwned<KeptAliases> kept_aliases;

// Takes the storage from `tensor`, which then has none.
c10::intrusive_ptr<c10::StorageImpl> take_storage(c10::TensorImpl& tensor) {
  auto& storage = const_cast<c10::Storage&>(tensor.unsafe_storage());
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim(storage.unsafeReleaseStorageImpl());
}

} // namespace

Tensor make_like(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const c10::TensorImpl& like) {
  return Tensor(c10::make_intrusive<AliasImpl>(c10::Storage(std::move(storage)), key, like));
}

Tensor relabel(Tensor&& tensor, c10::intrusive_ptr<c10::StorageImpl> storage) {
  if (tensor.use_count() == 1) {
    auto* impl = tensor.unsafeGetTensorImpl();
    const Device device = storage->device();
    impl->set_storage_keep_dtype(c10::Storage(std::move(storage)));
    impl->_change_backend_component_keys(device);
    return std::move(tensor);
  }
  return make_like(std::move(storage), identity.key, *tensor.unsafeGetTensorImpl());
}

void KernelScope::add_device(Device device) {
  if (device.type() == identity.type) {
    device_ = c10::openreg::with_index(device).index();
    c10::openreg::check_device_index(device_);
  } else {
    cpu_result_ = true;
  }
}

// As on CUDA, the wait is what the capture refuses.
C10_NOINLINE void KernelScope::refuse_wait_in_capture() const {
  if (device_ >= 0 && waits_in_this_call()) {
    const Stream stream = c10::openreg::getCurrentOpenRegStream(device_);
    if (c10::openreg::capture_of(stream) != 0) {
      OPENREG_CHECK(orStreamSynchronize(c10::openreg::OpenRegStream(stream).stream()));
    }
  }
}

void KernelScope::enter(bool has_kernel) {
  check_devices();
  if (orMayCapture()) {
    refuse_wait_in_capture();
  }
  const bool waits = C10_UNLIKELY(c10::openreg::wait_is_observed()) && waits_in_this_call();
  if (C10_UNLIKELY(waits) && traits_.sync->warns({operands_, flags_})) {
    c10::openreg::note_synchronization();
  }
  run_backward_on_this_thread();
  if (C10_LIKELY(device_ >= 0 && has_kernel)) {
    const orStream_t stream = c10::openreg::current_stream_handle(device_);
    const auto waits_last = [&] { return traits_.sync->waits_last && traits_.sync->waits_last({operands_, flags_}); };
    const bool waits_first = C10_UNLIKELY(waits) && !waits_last();
    if (C10_UNLIKELY(waits_first)) {
      c10::openreg::notify_wait(stream);
    }
    const auto operands = [](void* scope, orOperandFn_t visit, void* context) {
      static_cast<const KernelScope*>(scope)->visit_operands(visit, context);
    };
    kernel_.emplace(stream, traits_.name.c_str(), operands, this);
    if (C10_UNLIKELY(waits && !waits_first)) {
      c10::openreg::notify_wait(stream);
    }
  }
  // A kernel that is not PyTorch's may keep a CPU tensor that it made. The memory of that tensor must be host memory.
  const bool allocates_on_device = device_ >= 0 && !cpu_result_ && traits_.builtin;
  allocations_.emplace(
      allocates_on_device ? device_ : -1, allocates_on_device && makes_results() ? results_of(call_key()) : 0);
  excluded_.emplace(kExcluded);
}

// Calls `visit` for the memory of the arguments. The function is called when the kernel begins and when the kernel
// ends; at the end, it also calls `visit` for the memory of the results. For an operator of PyTorch, a tensor of
// another device is left out: CUDA's operators fetch its value or copy it, and check_devices() has made the host wait
// for it.
void KernelScope::visit_operands(orOperandFn_t visit, void* context) const {
  for (const Operand& each : operands_) {
    if (at::openreg::is_only_referenced(traits_, *each.argument)) {
      continue;
    }
    const unsigned access = !at::openreg::is_written(traits_, *each.argument, training_) ? orAccessRead
                            : each.argument->is_out()                                    ? orAccessWrite
                                                                                         : orAccessRead | orAccessWrite;
    for_each_component(*each.tensor, [&](const TensorImpl& part) {
      if (part.device().type() == identity.type && (part.device().index() == device_ || !traits_.builtin)) {
        c10::openreg::visit_tensor(part, access, visit, context);
      }
    });
  }
  for (const Adopted& result : adopted_) {
    const orOperand whole{result.device->data(), result.device->nbytes(), 0, nullptr, nullptr, orAccessWrite};
    visit(&whole, context);
  }
}

// All results of an in-place or out= operator are arguments, so all its allocations are temporaries.
bool KernelScope::makes_results() const {
  return !traits_.only_writes;
}

CallKey KernelScope::call_key() const {
  constexpr size_t kEnough = 8; // of a list, the first tensors decide
  const ArrayRef<Operand> operands(operands_.data(), std::min(operands_.size(), kEnough));
  CallKey key(&traits_);
  key.add(flag_bits_ << 16 | operands.size());
  for (const Operand& each : operands) {
    key.add(*each.tensor);
  }
  return key;
}

KernelScope::~KernelScope() {
  if (C10_LIKELY(traits_.builtin)) {
    if (const auto results = allocations_ ? allocations_->correction() : std::nullopt;
        C10_UNLIKELY(results.has_value()) && makes_results()) {
      note_results(call_key(), *results);
    }
    if (C10_UNLIKELY(has_cow_)) {
      separate();
    }
    KeptAliases& kept = *kept_aliases;
    for (Alias& known : aliases_) {
      if (C10_LIKELY(known.is_plain)) {
        kept.keep(std::move(known.cpu), *known.device->unsafeGetTensorImpl());
      }
    }
    return;
  }
  c10::SmallVector<c10::intrusive_ptr<c10::StorageImpl>, 4> views;
  for (Alias& known : aliases_) {
    if (is_device_tensor(*known.device) && known.cpu.has_storage()) {
      views.push_back(new_reference(known.cpu.storage().unsafeGetStorageImpl()));
    }
    known.cpu.reset();
  }
  std::sort(views.begin(), views.end(), [](const auto& a, const auto& b) { return a.get() < b.get(); });
  views.erase(std::unique(views.begin(), views.end()), views.end());
  for (const auto& view : views) {
    if (view.use_count() > 1) {
      c10::openreg::move_to_host(view.get());
    }
  }
}

c10::MaybeOwned<Tensor> KernelScope::alias(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (C10_LIKELY(aliases_.size() < kFewAliases && is_device_tensor(tensor) && !has_components(impl) && !find(&impl))) {
    if (c10::StorageImpl* const ready = ready_cpu_view(impl); C10_LIKELY(ready)) { // what follows, in its short form
      aliases_.emplace_back(c10::MaybeOwned<Tensor>::borrowed(tensor), kept_aliases->take(ready, impl), true);
      return c10::MaybeOwned<Tensor>::borrowed(aliases_.back().cpu);
    }
  }
  return c10::MaybeOwned<Tensor>::borrowed(alias(c10::MaybeOwned<Tensor>::borrowed(tensor)));
}

Tensor KernelScope::alias(Tensor&& tensor) {
  return alias(c10::MaybeOwned<Tensor>::owned(std::move(tensor)));
}

// The returned reference is valid until the next alias is made.
const Tensor& KernelScope::alias(c10::MaybeOwned<Tensor> tensor) {
  if (C10_UNLIKELY(!tensor->defined())) {
    static const Tensor undefined;
    return undefined;
  }
  if (const Alias* known = find(tensor->unsafeGetTensorImpl())) { // an output that is also an input
    return known->cpu;
  }
  const auto& impl = *tensor->unsafeGetTensorImpl();
  Tensor cpu;
  const bool is_plain = is_device_tensor(*tensor) && !has_components(impl);
  if (C10_UNLIKELY(!is_device_tensor(*tensor))) {
    cpu = *tensor;
  } else if (c10::StorageImpl* const ready = is_plain ? ready_cpu_view(impl) : nullptr; C10_LIKELY(ready)) {
    cpu = kept_aliases->take(ready, impl);
  } else if (is_plain) {
    cpu = kept_aliases->take(cpu_view(impl).get(), impl);
  } else {
    c10::openreg::check_memory(impl, traits_.name.c_str());
    cpu = map_components(
        *tensor, c10::BackendComponent::CPUBit, [&](const Tensor& component) { return alias(Tensor(component)); });
  }
  // Integer tensors may carry requires_grad (after `counts.lt_(x)`), but it cannot be set on them.
  if (C10_UNLIKELY(
          !tensor.unsafeIsBorrowed() && tensor->requires_grad() && is_device_tensor(*tensor) &&
          (tensor->is_floating_point() || tensor->is_complex()))) {
    cpu.unsafeGetTensorImpl()->set_requires_grad(true); // _sparse_mm_reduce_impl and other operators read it
  }
  if (C10_UNLIKELY(aliases_.size() >= kFewAliases)) { // a list of thousands of tensors, as optimizers pass
    if (!index_) {
      index_ = std::make_unique<Index>(8 * kFewAliases);
      for (size_t i = 0; i < aliases_.size(); ++i) {
        index_->emplace(aliases_[i].device->unsafeGetTensorImpl(), i);
      }
    }
    index_->emplace(tensor->unsafeGetTensorImpl(), aliases_.size());
  }
  aliases_.emplace_back(std::move(tensor), std::move(cpu), is_plain);
  return aliases_.back().cpu;
}

const KernelScope::Alias* KernelScope::find(const TensorImpl* device) const {
  if (C10_UNLIKELY(index_ != nullptr)) {
    const auto found = index_->find(device);
    return found == index_->end() ? nullptr : &aliases_[found->second];
  }
  for (const Alias& known : aliases_) {
    if (known.device->unsafeGetTensorImpl() == device) {
      return &known;
    }
  }
  return nullptr;
}

// The CPU view that the kernel may use as it is, if there is one.
c10::StorageImpl* KernelScope::ready_cpu_view(const TensorImpl& tensor) const {
  c10::StorageImpl* const storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  return C10_LIKELY(traits_.builtin && c10::openreg::keeps_cpu_view(storage))
             ? static_cast<c10::openreg::OpenRegStorageImpl*>(storage)->ready_cpu_view()
             : nullptr;
}

c10::intrusive_ptr<c10::StorageImpl> KernelScope::cpu_view(const TensorImpl& tensor) {
  c10::StorageImpl* const storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  c10::openreg::check_memory(tensor, traits_.name.c_str());
  const bool is_cow = c10::openreg::is_cow(storage);
  if (C10_LIKELY(traits_.builtin && c10::openreg::keeps_cpu_view(storage) && !is_cow)) {
    return c10::openreg::cpu_view_of(storage);
  }
  for (const Alias& known :
       aliases_) { // operands over one storage share a CPU view, so the kernel sees that they overlap
    if (known.device->has_storage() && known.device->storage().unsafeGetStorageImpl() == storage) {
      return new_reference(known.cpu.storage().unsafeGetStorageImpl());
    }
  }
  if (!traits_.builtin) {
    return c10::openreg::new_cpu_view(storage); // the kernel is not PyTorch's, and may write in any way
  }
  if (is_cow && !is_written(storage)) {
    has_cow_ = true;
    return c10::openreg::new_cow_view(storage);
  }
  return c10::openreg::cpu_view_of(storage);
}

// Whether the operator writes to a tensor whose storage is `storage`. A copy-on-write storage that is written must have
// memory of its own before the kernel runs, for two reasons. First, the last storage that shares the memory keeps the
// memory without a copy; a copy-on-write CPU view would share the memory too, and so would cause a copy. Second, a
// kernel may resize an out= argument. PyTorch then calls StorageImpl::set_data_ptr_noswap(), which leaves the
// materializer of a copy-on-write storage in place. The next write would call the materializer on memory that is not
// copy-on-write.
bool KernelScope::is_written(const c10::StorageImpl* storage) const {
  return std::any_of(operands_.begin(), operands_.end(), [&](const Operand& each) {
    return at::openreg::is_written(traits_, *each.argument, training_) && each.tensor->has_storage() &&
           each.tensor->unsafe_storage().unsafeGetStorageImpl() == storage;
  });
}

// If the kernel wrote to a copy-on-write CPU view, the CPU view has a copy of the memory. Gives that copy to the device
// storage.
void KernelScope::separate() {
  for (const Alias& known : aliases_) {
    if (is_device_tensor(*known.device) && known.device->has_storage() && known.cpu.defined()) {
      c10::openreg::take_over(
          known.device->storage().unsafeGetStorageImpl(), known.cpu.storage().unsafeGetStorageImpl());
    }
  }
}

Generator KernelScope::generator(const std::optional<Generator>& generator) const {
  if (device_ < 0) { // no tensor is on the device, only the generator: the CPU's kernel refuses such a generator
    return generator.value_or(Generator());
  }
  return c10::openreg::generator_of(generator, device_).cpu_generator();
}

Tensor KernelScope::result(Tensor&& tensor) {
  if (!tensor.defined() || !tensor.device().is_cpu() || cpu_result_ || device_ < 0) {
    return std::move(tensor);
  }
  if (C10_UNLIKELY(has_components(*tensor.unsafeGetTensorImpl()))) {
    for (const Alias& known : aliases_) {
      if (known.cpu.is_same(tensor)) {
        return *known.device;
      }
    }
    return map_components(tensor, identity.backend, [&](const Tensor& component) { return result(Tensor(component)); });
  }
  c10::openreg::notify_new_tensor(tensor.dtype());
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == kStrided,
      traits_.name,
      " would give a tensor of layout ",
      tensor.layout(),
      ", which the ",
      identity.device,
      " device does not have. Call .cpu() first.");
  if (C10_UNLIKELY(has_cow_)) {
    separate(); // a copy that the kernel made of an operand belongs to that operand, and is no fresh memory
  }
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (!c10::openreg::is_fresh(storage)) {
    for (const Alias& known : aliases_) { // an operand, or a view of one
      if (known.cpu.has_storage() && known.cpu.storage().unsafeGetStorageImpl() == storage) {
        return known.cpu.is_same(tensor)
                   ? *known.device
                   : relabel(std::move(tensor), new_reference(known.device->storage().unsafeGetStorageImpl()));
      }
    }
    for (const Adopted& adopted : adopted_) { // a second result over the same fresh memory
      if (adopted.cpu == storage) {
        return relabel(std::move(tensor), new_reference(adopted.device));
      }
    }
  }
  if (storage->nbytes() > 0) {
    allocations_->note_result(storage->data());
  }
  auto device_storage = c10::openreg::adopt_storage(
      tensor.use_count() == 1 ? take_storage(*tensor.unsafeGetTensorImpl()) : new_reference(storage), device_);
  adopted_.push_back({storage, device_storage.get()});
  return relabel(std::move(tensor), std::move(device_storage));
}

void KernelScope::write_back() {
  for (const Alias& known : aliases_) {
    if (!is_device_tensor(*known.device)) {
      continue;
    }
    const auto& cpu = *known.cpu.unsafeGetTensorImpl();
    auto& device = *known.device->unsafeGetTensorImpl();
    if (C10_UNLIKELY(has_components(cpu))) {
      device_ = device.device().index();
      write_back_components(
          known.cpu, *known.device, [&](const Tensor& component) { return result(Tensor(component)); });
      continue;
    }
    c10::openreg::take_over(
        device.unsafe_storage().unsafeGetStorageImpl(), cpu.unsafe_storage().unsafeGetStorageImpl());
    if (C10_UNLIKELY(
            cpu.sizes() != device.sizes() || cpu.strides() != device.strides() ||
            cpu.storage_offset() != device.storage_offset())) {
      device.set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
    }
    if (C10_UNLIKELY(cpu.is_conj() != device.is_conj())) { // linalg.lu_solve(out=) leaves its result conjugated
      device._set_conj(cpu.is_conj());
    }
  }
}

} // namespace at::openreg
