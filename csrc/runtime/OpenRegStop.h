#pragma once

#include "OpenRegException.h"

namespace c10::openreg {

// What throws instead of the error that an observer of the device stopped a call with (orActivityStop). Returns if no
// observer did. Called when a call has failed.
OPENREG_API void set_stop_handler(void (*handler)());

} // namespace c10::openreg
