// Ctrl-C and SIGTERM cancel the call that is running on a context, so that the program ends by its own way out. Until
// there is a context to cancel, they end the program at once: nothing is written by then.
#pragma once

#include "syrinx/syrinx.h"

// Ends this program when the one that started it ends, however that happens, if it asked for this by setting
// SYRINX_PARENT_PID to its process id. Call it first.
void end_with_parent();

// Make one before any other thread starts: threads inherit the blocked signals.
class CancelOnInterrupt {
public:
    CancelOnInterrupt();
    ~CancelOnInterrupt();
    CancelOnInterrupt(const CancelOnInterrupt &) = delete;
    CancelOnInterrupt & operator=(const CancelOnInterrupt &) = delete;
    void watch(syrinx_context * context);
};
