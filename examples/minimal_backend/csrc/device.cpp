#include "device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "queues.h"

// Takes the place of the vendor's driver and kernels: "device memory" is the host's memory, and a kernel is a loop.
namespace abacus {

// HARDWARE: the driver's allocation of device memory, such as cudaMalloc and cudaFree.
void* allocate(size_t bytes) {
  return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
}

void release(void* memory) {
  wait_for_device();
  std::free(memory);
}

// HARDWARE: the driver's copies over the bus, such as cudaMemcpy. They return when the copy is done.
void copy_to_device(void* device, const void* host, size_t bytes) {
  launch([=] { std::memcpy(device, host, bytes); });
  wait_for_queue();
}

void copy_to_host(void* host, const void* device, size_t bytes) {
  launch([=] { std::memcpy(host, device, bytes); });
  wait_for_queue();
}

// HARDWARE: from here on, launches of kernels. Each function queues what one kernel computes.
void binary(Binary operation, float* out, const float* a, const float* b, int64_t n) {
  launch([=] {
    for (int64_t i = 0; i < n; ++i) {
      switch (operation) {
        case Binary::Add:
          out[i] = a[i] + b[i];
          break;
        case Binary::Mul:
          out[i] = a[i] * b[i];
          break;
        case Binary::Relu:
          out[i] = a[i] <= 0 ? 0 : a[i]; // NaN stays NaN
          break;
        case Binary::ReluBackward: // a: the gradient of the output, b: the output
          out[i] = b[i] > 0 ? a[i] : 0;
          break;
      }
    }
  });
}

void matmul(Matrix out, Matrix a, Matrix b, int64_t m, int64_t n, int64_t k, float beta, float alpha) {
  launch([=] {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += a.data[i * a.row + l * a.column] * b.data[l * b.row + j * b.column];
        }
        float& element = out.data[i * out.row + j * out.column];
        element = (beta == 0 ? 0 : beta * element) + alpha * sum; // beta = 0: the old value is ignored, even a NaN
      }
    }
  });
}

void sum_rows(float* out, const float* in, int64_t rows, int64_t columns) {
  launch([=] {
    std::fill_n(out, columns, 0.0f);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        out[j] += in[i * columns + j];
      }
    }
  });
}

void mse_loss(float* loss, const float* in, const float* target, int64_t n) {
  launch([=] {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += (in[i] - target[i]) * (in[i] - target[i]);
    }
    *loss = sum / static_cast<float>(n);
  });
}

void mse_loss_backward(float* grad_in, const float* grad_loss, const float* in, const float* target, int64_t n) {
  launch([=] {
    for (int64_t i = 0; i < n; ++i) {
      grad_in[i] = *grad_loss * 2 * (in[i] - target[i]) / static_cast<float>(n);
    }
  });
}

static void copy_layout(
    void* to,
    const int64_t* to_strides,
    const void* from,
    const int64_t* from_strides,
    const int64_t* sizes,
    int dims,
    size_t size) {
  if (dims == 0) {
    std::memcpy(to, from, size);
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    copy_layout(
        static_cast<char*>(to) + i * to_strides[0] * static_cast<int64_t>(size),
        to_strides + 1,
        static_cast<const char*>(from) + i * from_strides[0] * static_cast<int64_t>(size),
        from_strides + 1,
        sizes + 1,
        dims - 1,
        size);
  }
}

void copy_strided(
    void* to,
    const int64_t* to_strides,
    const void* from,
    const int64_t* from_strides,
    const int64_t* sizes,
    int dims,
    size_t size) {
  // The caller's arrays end with the call, and the kernel may run later.
  using Copy = std::vector<int64_t>;
  launch([=,
          t = Copy(to_strides, to_strides + dims),
          f = Copy(from_strides, from_strides + dims),
          s = Copy(sizes, sizes + dims)] { copy_layout(to, t.data(), from, f.data(), s.data(), dims, size); });
}

} // namespace abacus
