#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"

// Dry execution: a program runs, allocates and frees as always, but its large tensors have no bytes. A kernel that
// would read absent bytes is skipped. So a program shows what memory it needs on a device that the host could not hold.
//
//   - A tensor is *small* if it has at most `limit` bytes. A small tensor always has real bytes.
//   - A kernel whose operands all have bytes is really computed, unless one of its results is large. Results of integers
//     are large from 128 MiB on, because programs branch on them.
//   - Any other kernel is skipped. Meta kernels find the shapes of its results, which get memory from the device's
//     allocator as always. Large results are *absent*; small results are *assumed*: they are zeros.
//   - What is computed from assumed values is assumed as well. The program's reads of assumed and absent values are
//     noted with the line of Python, if lines are recorded (set_launch_site()).
//   - Counts of assumed and absent values (histc, bincount) are assumed to be equal. So are choices among few (topk).
//   - A copy of integers from the host is made whatever its size, because programs branch on them: ids, masks, lengths.
//
// Rule: nothing else knows dry execution. start_dry() puts a kernel in front of each kernel of the device in the
// dispatcher's table, so that dry execution costs nothing before it starts. It lasts until the process ends. What is no
// operator of the namespace aten is in Undecided.h.
namespace at::openreg {

OPENREG_API void start_dry(size_t limit);

// From now on, the first matrix product on each stream allocates a workspace of this size and keeps it, as cuBLAS does.
// 0, the default: there is no workspace.
OPENREG_API void set_matmul_workspace(size_t bytes);

// When the devices start, this much memory of each is taken, and belongs to no tensor: what CUDA's context needs. 0, the
// default: none.
OPENREG_API void set_context_memory(size_t bytes);

// From now on, the reads at a line of Python, such as "train.py:12", give these values, one after the other, if nobody
// computed what they read. The last value is repeated. The file may have its folders in front.
OPENREG_API void assume_at(std::string line, std::vector<double> values);

// Writes `value` to a small tensor of the device if nobody computed what it contains. It stays assumed. Does nothing
// before dry execution starts.
OPENREG_API void assume(const Tensor& tensor, const Tensor& value);

struct AssumedRead {
  std::string line; // of Python; empty: lines are not recorded
  std::string how;  // what read, or which values the host has instead of those of the program
  uint64_t count;
};
// The program's reads of values that nobody computed, and large CPU tensors whose random numbers are zeros.
OPENREG_API std::vector<AssumedRead> assumed_reads();

} // namespace at::openreg
