#pragma once

#include <cstddef>
#include <cstdint>

// The device's interface for the rest of the backend: memory, copies and kernels, without PyTorch.
//
// In a real backend these functions call the driver: device.cpp marks the places with HARDWARE. Here the host does the
// work. The functions run in order, and return when their work is done. So the device has one stream, the default
// stream, and it is synchronous.
namespace abacus {

// Device memory. allocate() returns nullptr if there is none left; release(nullptr) does nothing.
void* allocate(size_t bytes);
void release(void* memory);
void copy_to_device(void* device, const void* host, size_t bytes);
void copy_to_host(void* host, const void* device, size_t bytes);

// A matrix in device memory, where element (i, j) is data[i * row + j * column].
struct Matrix {
  float* data;
  int64_t row, column;
};

// Element by element: out[i] = f(a[i], b[i]), for n elements without gaps.
enum class Binary { Add, Mul, Relu, ReluBackward };
void binary(Binary operation, float* out, const float* a, const float* b, int64_t n);
// out = beta * out + alpha * (a @ b), with a of m x k and b of k x n elements.
void matmul(Matrix out, Matrix a, Matrix b, int64_t m, int64_t n, int64_t k, float beta, float alpha);
// out[j] = the sum of in[i, j] over i.
void sum_rows(float* out, const float* in, int64_t rows, int64_t columns);
// loss = the mean of (in[i] - target[i]) ** 2, and its gradient. All pointers are to device memory.
void mse_loss(float* loss, const float* in, const float* target, int64_t n);
void mse_loss_backward(float* grad_in, const float* grad_loss, const float* in, const float* target, int64_t n);

// Copies a tensor of shape `sizes` from one layout to another. An element has `size` bytes. Strides count elements.
void copy_strided(
    void* to,
    const int64_t* to_strides,
    const void* from,
    const int64_t* from_strides,
    const int64_t* sizes,
    int dims,
    size_t size);

} // namespace abacus
