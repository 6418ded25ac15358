/* What the runtimes ask of the operating system, where it is not Linux: Linux's names, by what macOS and Windows have.
 *
 * Of files a mapping alone, for all of them. macOS keeps no thread on a core: what asks for one has no effect there, and no core is known.
 */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include "tw_windows.h"
#include <malloc.h>
#define TW_EXPORT __attribute__((dllexport))
/* Aligned memory has a `free` of its own: all is of that kind. */
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define malloc(bytes) _aligned_malloc(bytes, 16)
#define calloc(count, bytes) zeroed_malloc((count) * (bytes))
#define free _aligned_free
static inline void *zeroed_malloc(size_t bytes) {
    void *found = malloc(bytes);
    return found ? memset(found, 0, bytes) : NULL;
}
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define TW_EXPORT __attribute__((visibility("default")))
#endif

#if !defined(__linux__)
typedef uint64_t cpu_set_t;
#define CPU_SETSIZE 64
#define CPU_ZERO(set) (*(set) = 0)
#define CPU_SET(core, set) (*(set) |= (uint64_t)1 << (core))
#define CPU_ISSET(core, set) (*(set) >> (core) & 1)
#endif

#if defined(_WIN32)
/* Of the processor group in which the process began: 64 cores at most. */
static inline int sched_getaffinity(int process, size_t bytes, cpu_set_t *set) {
    DWORD_PTR own, all;
    (void)process, (void)bytes;
    if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return -1;
    *set = own;
    return own ? 0 : -1;
}

static inline int sched_setaffinity(int thread, size_t bytes, const cpu_set_t *set) {
    (void)thread, (void)bytes;
    return SetThreadAffinityMask(GetCurrentThread(), *set) ? 0 : -1;
}

static inline int sched_getcpu(void) { return (int)GetCurrentProcessorNumber(); }
#elif defined(__APPLE__)
static inline int sched_getaffinity(int process, size_t bytes, cpu_set_t *set) { return (void)process, (void)bytes, (void)set, -1; }
static inline int sched_setaffinity(int thread, size_t bytes, const cpu_set_t *set) { return (void)thread, (void)bytes, (void)set, -1; }
static inline int sched_getcpu(void) { return -1; }
#endif

/* Mapping files: where in them a mapping may begin, multiples of a unit; read-only memory that processes share, NULL and errno where there is
 * none, ERANGE where the file ends before; pages that are zeros; both given back. */
#if defined(_WIN32)
static inline int64_t map_unit(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwAllocationGranularity;
}

static inline void *map_file(const char *path, int64_t begin, size_t bytes) {
    wchar_t wide[32768];
    LARGE_INTEGER size;
    void *found = NULL;
    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, 32768)) return errno = EINVAL, NULL;
    const DWORD others = FILE_SHARE_READ | FILE_SHARE_DELETE; /* who replaces the file renames */
    HANDLE file = CreateFileW(wide, GENERIC_READ, others, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return errno = GetLastError() == ERROR_ACCESS_DENIED ? EACCES : ENOENT, NULL;
    if (!GetFileSizeEx(file, &size) || size.QuadPart < begin + (int64_t)bytes) {
        errno = ERANGE;
    } else {
        HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
        if (mapping) found = MapViewOfFile(mapping, FILE_MAP_READ, (DWORD)(begin >> 32), (DWORD)begin, bytes);
        if (!found) errno = ENOMEM;
        if (mapping) CloseHandle(mapping);
    }
    CloseHandle(file);
    return found;
}

static inline void *map_zeros(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }

static inline void unmap(void *memory, size_t bytes) {
    (void)bytes;
    if (!UnmapViewOfFile(memory)) VirtualFree(memory, 0, MEM_RELEASE);
}
#else
static inline int64_t map_unit(void) { return sysconf(_SC_PAGESIZE); }

static inline void *map_file(const char *path, int64_t begin, size_t bytes) {
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    void *found = MAP_FAILED;
    if (fstat(file, &facts) || facts.st_size < begin + (int64_t)bytes) errno = ERANGE;
    else found = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, begin);
    int reason = errno;
    close(file);
    errno = reason;
    return found == MAP_FAILED ? NULL : found;
}

static inline void *map_zeros(size_t bytes) {
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? NULL : found;
}

static inline void unmap(void *memory, size_t bytes) { munmap(memory, bytes); }
#endif
