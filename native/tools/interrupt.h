// Ctrl-C and SIGTERM cancel the call that is running on a context, so that the program ends by its own way out. Until
// there is a context to cancel, they end the program at once: nothing is written by then.
#pragma once

#include "syrinx/syrinx.h"

// Make one before any other thread starts: threads inherit the blocked signals.
class CancelOnInterrupt {
public:
    CancelOnInterrupt();
    ~CancelOnInterrupt();
    CancelOnInterrupt(const CancelOnInterrupt &) = delete;
    CancelOnInterrupt & operator=(const CancelOnInterrupt &) = delete;
    void watch(syrinx_context * context);
};
