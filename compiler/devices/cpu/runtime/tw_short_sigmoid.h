/* Sigmoids for results that are rounded to bf16. */
#pragma once

/* 1 / (1 + exp(-x)), off by 2e-4 of its value at most: 2^t as 2^floor(t) by a cubic in the rest. From t = 129 on that is infinite, and the result 0. */
#if defined(__AVX512DQ__) && TW_LANES == 16
TW_INLINE vf tw_sigmoid_bf16(vf x) {
    vf t = tw_min_of(tw_splat(129.0f), tw_max_of(tw_splat(-129.0f), x * -1.44269504f));
    vf f = (vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf q = tw_splat(7.80244917e-2f);
    q = q * f + 2.26067573e-1f;
    q = q * f + 6.95833206e-1f;
    q = q * f + 9.99925256e-1f;
    return (vf)_mm512_rcp14_ps((__m512)(1.0f + (vf)_mm512_scalef_ps((__m512)q, (__m512)t)));
}
#else
TW_INLINE vf tw_sigmoid_bf16(vf x) { return tw_sigmoid(x); }
#endif
