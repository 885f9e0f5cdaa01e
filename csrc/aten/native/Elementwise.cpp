#include "aten/native/Elementwise.h"

#include <ATen/TensorIterator.h>

#include "runtime/OpenRegStorage.h"
#include "runtime/OpenRegStream.h"

namespace at::openreg {

// If the tensor is dense and has fewer than GRAIN_SIZE elements, queues a fill on the current stream, as
// cudaMemsetAsync() does. For more elements fill_() is faster, because it uses several threads.
Tensor& zero_(Tensor& self) {
  if (self.numel() >= at::internal::GRAIN_SIZE || !self.is_non_overlapping_and_dense()) {
    return self.fill_(0);
  }
  c10::openreg::check_memory(*self.unsafeGetTensorImpl(), "aten::zero_");
  const auto stream = c10::openreg::getCurrentOpenRegStream(self.device().index()).stream();
  OPENREG_CHECK(orMemsetAsync(self.mutable_data_ptr(), 0, self.nbytes(), stream));
  return self;
}

} // namespace at::openreg
