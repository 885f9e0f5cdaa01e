#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <vector>

namespace at::openreg {

// Whether queued work may use a CPU view of the storage. Memory of other code may be freed without regard to the stream,
// so the storage must be of the device's own class; but a graph keeps addresses only, as on CUDA, so a capture takes all.
bool may_be_queued(const c10::StorageImpl* storage);

// The operands of one call, as the meta kernel and as the queued kernel see them.
class QueuedOperands {
 public:
  explicit QueuedOperands(size_t count) {
    for_meta.reserve(count);
    for_kernel.reserve(count);
  }

  torch::jit::Stack for_meta, for_kernel;
  bool takes_masks = false;  // a mask may be an index: the call has no result whose size the mask decides
  bool takes_sparse = false; // a sparse tensor may be read: `for_meta` then has the alias of the kernel

  // Adds an argument to both stacks. Returns false if a call with such an argument is not queued.
  bool add(const c10::IValue& value, const c10::Argument& argument);

  // Gives each empty output, or each output, the shape that the meta kernel has computed. PyTorch's factories pass an
  // empty output to an out= operator. An output that is also an input keeps its shape, because the kernel must get the
  // input unchanged.
  void resize_outputs(bool only_empty);

  // Throws the errors of PyTorch's kernels if an output overlaps itself, or another argument in part.
  void check_overlap() const;

  // Whether every tensor has the shape of the first one, or can be expanded to it. Then the shapes cause no error.
  bool fit_the_first() const;

  // Whether the kernel can write its outputs later: each output already has the shape and the strides that the meta
  // kernel computed, no output overlaps itself, and no output overlaps another argument in part.
  bool can_write() const;

 private:
  struct QueuedOperand {
    TensorImpl *device, *cpu, *meta; // the stacks keep `cpu` and `meta` alive
    bool is_written;
    bool is_repeated = false; // whether the tensor is passed as more than one argument

    bool defined() const {
      return cpu != c10::UndefinedTensorImpl::singleton();
    }
  };
  c10::SmallVector<QueuedOperand, 6> operands_;
  std::vector<Tensor> component_metas_; // of sparse operands; only operands_ refers to them

  // Adds an operand, and sets `meta` and `cpu` to the tensors that stand for it.
  bool add(const Tensor& tensor, bool is_written, Tensor& meta, Tensor& cpu);
  bool add_sparse(const Tensor& tensor, Tensor& meta, Tensor& cpu);
  template <class T>
  bool add_list(const c10::List<T>& tensors, bool is_written);
};

} // namespace at::openreg
