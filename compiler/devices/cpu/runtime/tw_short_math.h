/* Functions for results that are rounded to bf16, which keep 8 bits: exact enough for these, and faster than those of tw_kernel.h. */
#pragma once

/* erf, off by 7e-5 at most: x (1/c + (x^2 - c^2) Q(x^2)), Q by least squares reweighted towards the largest error, for |x| < c; 1 from there. */
TW_INLINE vf tw_short_erf(vf x) {
    const float c = 2.8125f;
    vf t = tw_min_of(tw_splat(c), tw_max_of(tw_splat(-c), x));
    vf s = t * t;
    vf q = tw_splat(-4.36470032e-7f);
    q = q * s + 1.47027167e-5f;
    q = q * s + -2.10883474e-4f;
    q = q * s + 1.73027779e-3f;
    q = q * s + -9.26438160e-3f;
    q = q * s + 3.48798968e-2f;
    q = q * s + -9.76473168e-2f;
    return t * ((s - c * c) * q + 1.0f / c);
}

/* 1 / (1 + exp(-x)), off by 2e-4 of its value at most: 2^t as 2^floor(t) by a cubic in the rest. From t = 129 on that is infinite, and the result 0. */
#if defined(__AVX512DQ__) && TW_LANES == 16
TW_INLINE vf tw_short_sigmoid(vf x) {
    vf t = tw_min_of(tw_splat(129.0f), tw_max_of(tw_splat(-129.0f), x * -1.44269504f));
    vf f = (vf)_mm512_reduce_ps((__m512)t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    vf q = tw_splat(7.80244917e-2f);
    q = q * f + 2.26067573e-1f;
    q = q * f + 6.95833206e-1f;
    q = q * f + 9.99925256e-1f;
    return (vf)_mm512_rcp14_ps((__m512)(1.0f + (vf)_mm512_scalef_ps((__m512)q, (__m512)t)));
}
#else
TW_INLINE vf tw_short_sigmoid(vf x) { return tw_sigmoid(x); }
#endif
