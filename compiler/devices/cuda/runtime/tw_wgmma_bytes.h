/* Products of bytes by a warpgroup, summed in int32. For kernels of sm_90a that include it.
 *
 * "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation using wgmma.mma_async" of the PTX ISA, "Integer type": d (64 x n) =
 * a (64 x 32) b (32 x n) + (accumulate ? d : 0), by the fragments of d that products of floats have. Both operands are K-major behind
 * descriptors, for nothing else is transposed: 32 bytes of a row of each. Sums wrap around.
 *
 * "... using wgmma.mma_async.sp": a (64 x 64) is zero at two of each four places along k, of which the other 32 bytes of a row are given,
 * and 64 bytes of a row of b. Each warp has the metadata of its 16 rows as mma.sp.m16n8k64 has: a word of each lane, selector 0. */
#pragma once
#if TW_SM90A

#define TW_D8(d, i) "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), "+r"(d[i + 6]), "+r"(d[i + 7])
#define TW_D16(d, i) TW_D8(d, i), TW_D8(d, i + 8)
#define TW_D32(d, i) TW_D16(d, i), TW_D16(d, i + 16)
#define TW_S0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define TW_S1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_S2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define TW_S3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_S4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TW_S5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TW_S6 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define TW_S7 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TW_S01 TW_S0 ", " TW_S1
#define TW_S03 TW_S01 ", " TW_S2 ", " TW_S3
#define TW_S05 TW_S03 ", " TW_S4 ", " TW_S5
#define TW_S07 TW_S05 ", " TW_S6 ", " TW_S7

#define TW_WGMMA_OF(NAME, TYPES, N, REGISTERS, NAMES, A, B, ACCUMULATE, ...)                                                      \
    TW_DEVICE void tw_wgmma_k32_##NAME(int (&d)[REGISTERS], unsigned long long a, unsigned long long b, int accumulate) {          \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k32.s32." TYPES     \
                     " {" NAMES "}, " A ", " B ", p; }"                                                                         \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate));                                                          \
    }
#define TW_WGMMA(...) TW_WGMMA_OF(s8, "s8.s8", __VA_ARGS__) TW_WGMMA_OF(u8_s8, "u8.s8", __VA_ARGS__)

TW_WGMMA(8, 4, "%0, %1, %2, %3", "%4", "%5", "%6", "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]))
TW_WGMMA(16, 8, "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", TW_D8(d, 0))
TW_WGMMA(32, 16, TW_S0, "%16", "%17", "%18", TW_D16(d, 0))
TW_WGMMA(64, 32, TW_S01, "%32", "%33", "%34", TW_D32(d, 0))
TW_WGMMA(96, 48, TW_S01 ", " TW_S2, "%48", "%49", "%50", TW_D32(d, 0), TW_D16(d, 32))
TW_WGMMA(128, 64, TW_S03, "%64", "%65", "%66", TW_D32(d, 0), TW_D32(d, 32))
TW_WGMMA(192, 96, TW_S05, "%96", "%97", "%98", TW_D32(d, 0), TW_D32(d, 32), TW_D32(d, 64))
TW_WGMMA(256, 128, TW_S07, "%128", "%129", "%130", TW_D32(d, 0), TW_D32(d, 32), TW_D32(d, 64), TW_D32(d, 96))

#define TW_WGMMA_SP_OF(NAME, TYPES, N, REGISTERS, NAMES, A, B, METADATA, ACCUMULATE, ...)                                           \
    TW_DEVICE void tw_wgmma_sp_k64_##NAME(int (&d)[REGISTERS], unsigned long long a, unsigned long long b, unsigned metadata,     \
                                          int accumulate) {                                                                     \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE ", 0; wgmma.mma_async.sp.sync.aligned.m64n" #N "k64.s32." TYPES  \
                     " {" NAMES "}, " A ", " B ", " METADATA ", 0, p; }"                                                         \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(metadata), "r"(accumulate));                                           \
    }
#define TW_WGMMA_SP(...) TW_WGMMA_SP_OF(s8, "s8.s8", __VA_ARGS__) TW_WGMMA_SP_OF(s8_u8, "s8.u8", __VA_ARGS__)

TW_WGMMA_SP(16, 8, "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", TW_D8(d, 0))
TW_WGMMA_SP(32, 16, TW_S0, "%16", "%17", "%18", "%19", TW_D16(d, 0))
TW_WGMMA_SP(64, 32, TW_S01, "%32", "%33", "%34", "%35", TW_D32(d, 0))
TW_WGMMA_SP(128, 64, TW_S03, "%64", "%65", "%66", "%67", TW_D32(d, 0), TW_D32(d, 32))
TW_WGMMA_SP(256, 128, TW_S07, "%128", "%129", "%130", "%131", TW_D32(d, 0), TW_D32(d, 32), TW_D32(d, 64), TW_D32(d, 96))

#undef TW_WGMMA
#undef TW_WGMMA_OF
#undef TW_WGMMA_SP
#undef TW_WGMMA_SP_OF
#undef TW_D8
#undef TW_D16
#undef TW_D32
#undef TW_S0
#undef TW_S1
#undef TW_S2
#undef TW_S3
#undef TW_S4
#undef TW_S5
#undef TW_S6
#undef TW_S7
#undef TW_S01
#undef TW_S03
#undef TW_S05
#undef TW_S07

#endif /* sm_90a */
