/* Products of a warpgroup whose first operand is zero at two of each four places along k. For kernels of sm_90a that include it.
 *
 * "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation using wgmma.mma_async.sp" of the PTX ISA: d (64 x n) = a (64 x
 * 32, of which 16 are given) b (32 x n) + (accumulate ? d : 0). Both operands are K-major behind descriptors: 32 bytes of a row of a, 64
 * of b. Each warp has the metadata of its 16 rows, as mma.sp.m16n8k32 has: with selector 0 in lanes 0 and 1 of a group of four, with 1
 * in lanes 2 and 3. */
#pragma once
#if TW_SM90A

#define TW_D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define TW_D32(d, i) TW_D8(d, i), TW_D8(d, i + 8), TW_D8(d, i + 16), TW_D8(d, i + 24)
#define TW_S0 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TW_S1 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TW_S2 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TW_S3 \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define TW_WGMMA_SP_OF(TYPE, N, REGISTERS, NAMES, A, B, METADATA, SELECTOR, ACCUMULATE, ...)                                          \
    template <int selector>                                                                                                       \
    TW_DEVICE void tw_wgmma_sp_k32_##TYPE(float (&d)[REGISTERS], unsigned long long a, unsigned long long b, unsigned metadata,      \
                                          int accumulate) {                                                                       \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " ACCUMULATE ", 0; wgmma.mma_async.sp.sync.aligned.m64n" #N                      \
                     "k32.f32." #TYPE "." #TYPE " {" NAMES "}, " A ", " B ", " METADATA ", " SELECTOR ", p, 1, 1, 0, 0; }"             \
                     : __VA_ARGS__ : "l"(a), "l"(b), "r"(metadata), "n"(selector), "r"(accumulate));                              \
    }
#define TW_WGMMA_SP(...) TW_WGMMA_SP_OF(f16, __VA_ARGS__) TW_WGMMA_SP_OF(bf16, __VA_ARGS__)

TW_WGMMA_SP(16, 8, "%0, %1, %2, %3, %4, %5, %6, %7", "%8", "%9", "%10", "%11", "%12", TW_D8(d, 0))
TW_WGMMA_SP(32, 16, "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", "%16", "%17", "%18", "%19", "%20", TW_D8(d, 0), TW_D8(d, 8))
TW_WGMMA_SP(64, 32, TW_S0, "%32", "%33", "%34", "%35", "%36", TW_D32(d, 0))
TW_WGMMA_SP(128, 64, TW_S0 ", " TW_S1, "%64", "%65", "%66", "%67", "%68", TW_D32(d, 0), TW_D32(d, 32))
TW_WGMMA_SP(256, 128, TW_S0 ", " TW_S1 ", " TW_S2 ", " TW_S3, "%128", "%129", "%130", "%131", "%132",
            TW_D32(d, 0), TW_D32(d, 32), TW_D32(d, 64), TW_D32(d, 96))

#undef TW_WGMMA_SP
#undef TW_WGMMA_SP_OF
#undef TW_D8
#undef TW_D32
#undef TW_S0
#undef TW_S1
#undef TW_S2
#undef TW_S3

#endif /* sm_90a */
