#include "interrupt.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

// A signal handler may not take the library's locks; a thread that waits for the signal may.
static std::thread waiter;
static std::atomic<syrinx_context *> watched{nullptr};

void end_with_parent() {
    const char * const pid = std::getenv("SYRINX_PARENT_PID");
    if (!pid) {
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (std::to_string(getppid()) != pid) {
        _exit(128 + SIGTERM);  // it ended before that call
    }
}

static void wait_for_signals(sigset_t set) {
    int signal = 0;
    while (sigwait(&set, &signal) == 0 && signal != SIGUSR1) {
        syrinx_context * const context = watched;
        if (!context) {
            _exit(128 + signal);
        }
        syrinx_context_cancel(context);
    }
}

CancelOnInterrupt::CancelOnInterrupt() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);  // ends the waiting itself
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    waiter = std::thread(wait_for_signals, set);
}

CancelOnInterrupt::~CancelOnInterrupt() {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    waiter.join();
    watched = nullptr;
}

void CancelOnInterrupt::watch(syrinx_context * context) { watched = context; }
