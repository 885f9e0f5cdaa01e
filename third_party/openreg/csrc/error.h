#pragma once

#include <cstddef>
#include <exception>
#include <string>

#include "openreg.h"

// The errors of the public functions: each thread keeps the code and the message of its last failure. error.cpp has the
// texts of the codes.
namespace openreg {

// Notes the public function that the calling thread is in. The messages of fail() begin with this name.
void enter(const char* call);

// Records `code` and a sentence for the calling thread and returns `code`. The sentence should name the value, the
// limit and the way out.
[[gnu::format(printf, 2, 3)]] orError_t fail(orError_t code, const char* format, ...);

// As fail(), but the message is only the sentence, without the function's name: users search for this sentence.
orError_t failVerbatim(orError_t code, const char* sentence);

// Keeps the exception behind the orErrorLaunchFailure that is about to be returned, for orRethrowLaunchFailure().
void setLaunchFailure(std::exception_ptr exception);

// Keeps the calling thread's last failure and restores it at the end of the scope, in which a subscriber makes calls of
// its own. The program must not see the failures of those calls.
class KeptError {
 public:
  KeptError();
  ~KeptError();
  KeptError(const KeptError&) = delete;
  KeptError& operator=(const KeptError&) = delete;

 private:
  const char* const call_;
  const orError_t code_;
  struct ErrorDetails* const details_;
};

// A size in the style of PyTorch's allocators: "512 bytes", "4.00 KiB", "16.00 GiB".
std::string formatBytes(size_t bytes);

} // namespace openreg
