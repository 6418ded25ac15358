/* Signals raised by a kernel become faults: the handler lets the thread go on in a function that reports, on its own stack. */
#include "engine.h"

#include <csignal>
#include <cstring>
#include <ucontext.h>

namespace twd {
namespace {

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];
int depth;
stack_t own_stack;
alignas(16) char stack_bytes[64 << 10];
volatile int caught;
void *volatile caught_at;

void report() {
    const int number = caught;
    caught = 0;
    if (number == SIGFPE) fault("crash", "division by zero or overflow of an integer");
    if (number == SIGILL) fault("crash", "illegal instruction");
    if (on_a_stack(caught_at)) fault("crash", "the thread's stack is exhausted");
    fault("crash", "wild pointer or misaligned vector access at %s", describe(caught_at).c_str());
}

void handle(int number, siginfo_t *info, void *opaque) {
    if (!engine.running || caught) { /* not a kernel's: whoever handled it before does */
        for (int i = 0; i < 4; i++)
            if (SIGNALS[i] == number) sigaction(number, &before[i], nullptr);
        return;
    }
    caught = number;
    caught_at = info->si_addr;
    auto &machine = static_cast<ucontext_t *>(opaque)->uc_mcontext;
    /* Begins `report` as if it had just been called, at the top of the thread's stack: what is below is not needed any more. */
    char *top = self().fiber.stack + STACK_BYTES - 4096 - 256;
#if defined(__x86_64__)
    machine.gregs[REG_RSP] = (greg_t)((uintptr_t)top / 16 * 16 - 8);
    machine.gregs[REG_RIP] = (greg_t)report;
#elif defined(__aarch64__)
    machine.sp = (uintptr_t)top / 16 * 16;
    machine.pc = (uintptr_t)report;
#else
    (void)machine, (void)top;
    sigaction(number, &before[0], nullptr);
#endif
}

} // namespace

SignalsAreFaults::SignalsAreFaults() {
    if (depth++) return;
    stack_t stack{};
    stack.ss_sp = stack_bytes;
    stack.ss_size = sizeof stack_bytes;
    sigaltstack(&stack, &own_stack);
    struct sigaction action {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; i++) sigaction(SIGNALS[i], &action, &before[i]);
}

SignalsAreFaults::~SignalsAreFaults() {
    if (--depth) return;
    for (int i = 0; i < 4; i++) sigaction(SIGNALS[i], &before[i], nullptr);
    sigaltstack(&own_stack, nullptr);
}

} // namespace twd
