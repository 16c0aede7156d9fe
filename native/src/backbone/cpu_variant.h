// Which build of ggml's CPU backend computes. An engine for this machine has one linked in ("static"). An engine for
// phones brings one module per instruction-set level, libggml-cpu-LEVEL.so; the best that the processor can run is
// loaded once per process.
#pragma once

#include <string>

namespace syrinx {

// Loads the module, or the one that the environment variable SYRINX_CPU_VARIANT names. ggml's own search is no use: it
// lists folders, and an app's libraries may lie unextracted inside its APK.
// Errors: UNSUPPORTED (no module fits this processor or loads; the named one is unknown or does not fit).
void load_cpu_variant();

// The level that was loaded, or "static"; "" before.
const std::string & cpu_variant();

}  // namespace syrinx
