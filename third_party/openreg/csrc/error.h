#pragma once

#include <cstddef>
#include <exception>
#include <string>

#include "openreg.h"

namespace openreg {

// Names the public function that the calling thread is in: fail() begins its message with it.
void enter(const char* call);

// Records `code` and a sentence for the calling thread and returns `code`. The sentence names the value, the limit and
// the way out.
[[gnu::format(printf, 2, 3)]] orError_t fail(orError_t code, const char* format, ...);

// As fail(), for a sentence that users search for and that therefore stands alone, without the function's name.
orError_t failVerbatim(orError_t code, const char* sentence);

// Keeps the exception behind the orErrorLaunchFailure that is about to be returned, for orRethrowLaunchFailure().
void setLaunchFailure(std::exception_ptr exception);

// "512 bytes", "4.00 KiB", "16.00 GiB": as PyTorch's allocators print sizes.
std::string formatBytes(size_t bytes);

} // namespace openreg
