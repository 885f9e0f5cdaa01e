#pragma once

namespace openreg {

// Says in words, on stderr, which device memory was touched by a host access that raised SIGSEGV, then lets the handler
// that was there before do its work. Every other SIGSEGV goes to that handler unchanged.
void installFaultHandler();

} // namespace openreg
