/* What the runtimes use of POSIX threads and clocks, by what Windows has.
 *
 * With TW_ALONE also what a library or program needs that is linked without the start-up of a C library, which Zig would build first: a minute
 * of a core. The functions of C are then those of Windows' own, the Universal C Runtime.
 */
#pragma once
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK pthread_mutex_t;
typedef CONDITION_VARIABLE pthread_cond_t;
typedef HANDLE pthread_t;
#define PTHREAD_MUTEX_INITIALIZER SRWLOCK_INIT
#define PTHREAD_COND_INITIALIZER CONDITION_VARIABLE_INIT
#define pthread_mutex_init(mutex, unused) InitializeSRWLock(mutex)
#define pthread_mutex_destroy(mutex) ((void)(mutex))
#define pthread_mutex_lock(mutex) AcquireSRWLockExclusive(mutex)
#define pthread_mutex_unlock(mutex) ReleaseSRWLockExclusive(mutex)
#define pthread_cond_init(condition, unused) InitializeConditionVariable(condition)
#define pthread_cond_destroy(condition) ((void)(condition))
#define pthread_cond_wait(condition, mutex) SleepConditionVariableSRW(condition, mutex, INFINITE, 0)
#define pthread_cond_signal(condition) WakeConditionVariable(condition)
#define pthread_cond_broadcast(condition) WakeAllConditionVariable(condition)
#define sched_yield() SwitchToThread()

struct tw_start {
    void *(*function)(void *);
    void *about;
};

static DWORD WINAPI tw_started(void *given) {
    const struct tw_start start = *(struct tw_start *)given;
    HeapFree(GetProcessHeap(), 0, given);
    start.function(start.about);
    return 0;
}

/* 0, or an error of errno.h. */
static inline int pthread_create(pthread_t *thread, const void *unused, void *(*function)(void *), void *about) {
    struct tw_start *start = HeapAlloc(GetProcessHeap(), 0, sizeof *start);
    (void)unused;
    if (!start) return ENOMEM;
    *start = (struct tw_start){function, about};
    *thread = CreateThread(NULL, 0, tw_started, start, 0, NULL);
    if (*thread) return 0;
    HeapFree(GetProcessHeap(), 0, start);
    return EAGAIN;
}

static inline int pthread_join(pthread_t thread, void **unused) {
    (void)unused;
    WaitForSingleObject(thread, INFINITE);
    return !CloseHandle(thread);
}

/* Of the clocks that runtimes read: one that never goes back, and the processor time of this thread. */
#undef CLOCK_MONOTONIC
#undef CLOCK_THREAD_CPUTIME_ID
enum { CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID };
#define clock_gettime tw_clock
static inline int tw_clock(int clock, struct timespec *found) {
    if (clock == CLOCK_MONOTONIC) {
        LARGE_INTEGER now, each;
        QueryPerformanceCounter(&now), QueryPerformanceFrequency(&each);
        found->tv_sec = now.QuadPart / each.QuadPart;
        found->tv_nsec = (long)(now.QuadPart % each.QuadPart * 1000000000 / each.QuadPart);
        return 0;
    }
    FILETIME began, ended, kernel, user; /* in units of 100 ns */
    if (!GetThreadTimes(GetCurrentThread(), &began, &ended, &kernel, &user)) return -1;
    const uint64_t units = (((uint64_t)kernel.dwHighDateTime + user.dwHighDateTime) << 32) + kernel.dwLowDateTime + user.dwLowDateTime;
    found->tv_sec = (int64_t)(units / 10000000), found->tv_nsec = (long)(units % 10000000 * 100);
    return 0;
}

#if defined(TW_ALONE)
/* Where the linker finds variables of threads; Windows makes room for them in each. */
ULONG _tls_index;
__attribute__((section(".tls"))) char _tls_start;
__attribute__((section(".tls$ZZZ"))) char _tls_end;
__attribute__((section(".rdata$T"))) const IMAGE_TLS_DIRECTORY64 _tls_used = {
    (uintptr_t)&_tls_start, (uintptr_t)&_tls_end, (uintptr_t)&_tls_index, 0, 0, {0}};
int _fltused; /* that floats are used */

BOOL WINAPI DllMainCRTStartup(HINSTANCE library, DWORD reason, void *unused) {
    (void)library, (void)reason, (void)unused;
    return TRUE;
}

/* What Windows' headers would define over these. */
int vsnprintf(char *to, size_t bytes, const char *format, va_list args) {
    return __stdio_common_vsprintf(2 /* counts what did not fit */, to, bytes, format, NULL, args);
}

int snprintf(char *to, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int count = vsnprintf(to, bytes, format, args);
    va_end(args);
    return count;
}

int fprintf(FILE *to, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int count = __stdio_common_vfprintf(0, to, format, NULL, args);
    va_end(args);
    return count;
}

/* What Clang makes of a sine beside a cosine of the same number. */
void sincosf(float x, float *sine, float *cosine) {
    float (*volatile first)(float) = sinf, (*volatile second)(float) = cosf;
    *sine = first(x), *cosine = second(x);
}

void sincos(double x, double *sine, double *cosine) {
    double (*volatile first)(double) = sin, (*volatile second)(double) = cos;
    *sine = first(x), *cosine = second(x);
}

/* Conversions of halves, for which a processor may have no instruction: rounded once, to the nearest, ties to even. */
_Float16 __truncdfhf2(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7FF) - 1023;
    const uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
    uint64_t half = 0;
    if (exponent == 1024 && fraction) half = 0x7E00 | fraction >> 42;
    else if (exponent > 15) half = 0x7C00;
    else if (exponent >= -25) {
        const int shift = exponent < -14 ? 28 - exponent : 42;
        const uint64_t whole = fraction | (uint64_t)1 << 52, left = whole & (((uint64_t)1 << shift) - 1), tie = (uint64_t)1 << (shift - 1);
        half = (whole >> shift) + (exponent < -14 ? 0 : (uint64_t)(exponent + 14) << 10); /* the leading one adds to the exponent */
        half += left > tie || (left == tie && half & 1);
    }
    const uint16_t found = (uint16_t)(half | (bits >> 48 & 0x8000));
    _Float16 result;
    memcpy(&result, &found, sizeof result);
    return result;
}

_Float16 __truncsfhf2(float x) { return __truncdfhf2(x); }

float __extendhfsf2(_Float16 x) {
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (!exponent) return (bits >> 15 ? -0x1p-24f : 0x1p-24f) * (float)fraction;
    const uint32_t wide = (uint32_t)(bits >> 15) << 31 | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float result;
    memcpy(&result, &wide, sizeof result);
    return result;
}

/* Touches each page of a frame of rax bytes, from the top: the stack grows by the page below. All registers stay. */
__asm__(".globl ___chkstk_ms\n"
        "___chkstk_ms:\n"
        "push %rcx\n"
        "push %rax\n"
        "lea 24(%rsp), %rcx\n"
        "1: cmp $4096, %rax\n"
        "jb 2f\n"
        "sub $4096, %rcx\n"
        "orb $0, (%rcx)\n"
        "sub $4096, %rax\n"
        "jmp 1b\n"
        "2: sub %rax, %rcx\n"
        "orb $0, (%rcx)\n"
        "pop %rax\n"
        "pop %rcx\n"
        "ret\n");
#endif
