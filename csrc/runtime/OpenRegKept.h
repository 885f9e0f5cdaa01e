#pragma once

// Which handles (streams, events) live until the process ends.
namespace c10::openreg {

// True while the calling thread makes a handle that this library keeps until the process ends. The check for handles
// that a program forgot to destroy does not count such a handle.
inline thread_local bool makes_kept_handle = false;

} // namespace c10::openreg
