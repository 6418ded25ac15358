#include "fiber.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#if !defined(TWD_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define TWD_UCONTEXT
#endif
#ifdef TWD_UCONTEXT
#include <ucontext.h>
#endif

/* The address sanitizer must know which stack is in use; these are there when the process runs under it. */
extern "C" {
void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t size) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *size) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *address, size_t size) __attribute__((weak));
}

namespace twd {
namespace {

constexpr size_t GUARD_BYTES = 4096, MOST_STACKS = 40000;
char *region;
size_t used;
std::vector<char *> unused;
const void *main_stack;
size_t main_stack_bytes;
void (*entry_point)();

char *take_stack() {
    if (!unused.empty()) {
        char *stack = unused.back();
        unused.pop_back();
        return stack;
    }
    if (!region) {
        region = (char *)mmap(nullptr, MOST_STACKS * STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (region == MAP_FAILED) abort();
    }
    if (used == MOST_STACKS) abort();
    char *stack = region + used++ * STACK_BYTES + GUARD_BYTES;
    if (mprotect(stack, STACK_BYTES - GUARD_BYTES, PROT_READ | PROT_WRITE)) abort();
    return stack;
}

/* The first thing on a new stack. */
void begin() {
    if (__sanitizer_finish_switch_fiber) {
        const void *bottom;
        size_t size;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
        if (!main_stack) main_stack = bottom, main_stack_bytes = size;
    }
    entry_point();
    abort();
}

} // namespace

#ifndef TWD_UCONTEXT
/* Saves what the calling convention asks a callee to keep, exchanges stacks, restores. */
extern "C" void twd_switch(void **save, void *to);
#ifdef __x86_64__
asm(".text\n.globl twd_switch\n.hidden twd_switch\n.type twd_switch,@function\n"
    "twd_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
    ".size twd_switch, .-twd_switch\n");
#else
asm(".text\n.globl twd_switch\n.hidden twd_switch\n.type twd_switch,@function\n"
    "twd_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n"
    ".size twd_switch, .-twd_switch\n");
#endif
#endif

void Fiber::prepare(void (*entry)()) {
    entry_point = entry;
    stack = take_stack();
    const size_t size = STACK_BYTES - GUARD_BYTES;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(stack, size);
#ifdef TWD_UCONTEXT
    auto *context = static_cast<ucontext_t *>(stack_pointer ? stack_pointer : (stack_pointer = malloc(sizeof(ucontext_t))));
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = size;
    context->uc_link = nullptr;
    makecontext(context, begin, 0);
#elif defined(__x86_64__)
    /* What twd_switch pops: six registers and the address it returns to; a call leaves the stack 8 off a multiple of 16. */
    void **top = (void **)(stack + size - 64);
    *--top = nullptr;
    *--top = (void *)begin;
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    stack_pointer = top;
#else
    char *top = stack + size - 64 - 160;
    memset(top, 0, 160);
    *(void **)(top + 88) = (void *)begin;
    stack_pointer = top;
#endif
}

void Fiber::release() {
    unused.push_back(stack);
    stack = nullptr;
#ifdef TWD_UCONTEXT
    free(stack_pointer);
#endif
    stack_pointer = nullptr;
}

void switch_fiber(Fiber &from, Fiber &to) {
    void *fake = nullptr;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&fake, to.stack ? to.stack : main_stack, to.stack ? STACK_BYTES - GUARD_BYTES : main_stack_bytes);
#ifdef TWD_UCONTEXT
    if (!from.stack_pointer) from.stack_pointer = malloc(sizeof(ucontext_t));
    swapcontext(static_cast<ucontext_t *>(from.stack_pointer), static_cast<ucontext_t *>(to.stack_pointer));
#else
    twd_switch(&from.stack_pointer, to.stack_pointer);
#endif
    if (__sanitizer_finish_switch_fiber) __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

bool on_a_stack(const void *address) {
    return region && address >= region && address < region + used * STACK_BYTES;
}

} // namespace twd
